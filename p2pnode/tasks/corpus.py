"""Reads text files as windows of bytes of equal length. A single plain file stays on disk, memory-mapped."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..compression.bits import Bytes
from ..wire.errors import LocalProblem, UsageError

HELD_OUT = 20  # the last twentieth of each file is for testing
MAX_FILES = 100_000
MAX_BYTES = 4 << 30
_LOOKED_AT = 8192  # a file without a zero in its first bytes counts as text


@dataclass(frozen=True)
class Corpus:
    """Windows of `context` + 1 bytes. Each begins with the last byte of the one before it."""

    train: Bytes  # (windows, context + 1), a view
    train_file: NDArray[np.int64]  # the file that each window is from
    test: Bytes
    files: int


def read_corpus(source: str, context: int) -> Corpus:
    """The text in a file or below a directory; UsageError when there is no text or too little."""
    path = Path(source).expanduser()
    paths = text_files(path)
    pieces = [piece for piece in (_read(one) for one in paths) if len(piece) > context]
    windows = [(len(piece) - 1) // context for piece in pieces]
    held = [count // HELD_OUT for count in windows]
    if pieces and sum(held) == 0:
        longest = int(np.argmax(windows))
        held[longest] = 1
    if sum(windows) - sum(held) < 1:
        raise UsageError(f"--data {source[:200]!r} has too little text; one file must have {2 * context + 1} bytes")
    kept = [count - out for count, out in zip(windows, held, strict=True)]
    train = [piece[: count * context + 1] for piece, count in zip(pieces, kept, strict=True) if count]
    test = [piece[n * context : all_ * context + 1] for piece, n, all_ in zip(pieces, kept, windows, strict=True)]
    return Corpus(
        _windows(train, context),
        np.repeat(np.arange(len(kept)), kept),
        _windows([piece for piece, out in zip(test, held, strict=True) if out], context),
        len(train),
    )


def _windows(pieces: list[Bytes], context: int) -> Bytes:
    """All windows as one view. Several pieces are joined, so each then ends with the first byte of the next."""
    whole = pieces[0] if len(pieces) == 1 else np.concatenate([*(piece[:-1] for piece in pieces), pieces[-1][-1:]])
    return np.lib.stride_tricks.sliding_window_view(whole, context + 1, writeable=True)[::context]


def text_files(path: Path) -> list[Path]:
    """The file itself, or the text files below a directory in the order of their names, without hidden ones."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"--data {str(path)[:200]!r} is neither a file nor a directory")
    found = []
    for one in sorted(path.rglob("*")):
        if any(part.startswith(".") for part in one.relative_to(path).parts) or not one.is_file():
            continue
        if _is_text(one):
            found.append(one)
        if len(found) > MAX_FILES:
            raise UsageError(f"--data {str(path)[:200]!r} has more than {MAX_FILES} files; name a smaller directory")
    if not found:
        raise UsageError(f"--data {str(path)[:200]!r} has no text files in it")
    if sum(one.stat().st_size for one in found) > MAX_BYTES:
        raise UsageError(
            f"--data {str(path)[:200]!r} is over {MAX_BYTES >> 30} GiB; name a smaller directory, or one file"
        )
    return found


def _is_text(path: Path) -> bool:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            start = file.read(_LOOKED_AT)
    except (OSError, EOFError, zlib.error):
        return False
    return bool(start) and 0 not in start


def _read(path: Path) -> Bytes:
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return np.frombuffer(bytearray(file.read(MAX_BYTES)), np.uint8)
        return np.memmap(path, np.uint8, mode="c") if path.stat().st_size else np.empty(0, np.uint8)
    except (OSError, EOFError, zlib.error) as error:
        raise LocalProblem(f"{path} cannot be read ({str(error)[:120]})") from None
