"""Texts and token files as windows of equal length, which are read when they are needed: files stay on disk.

A source is a text file, a folder of texts, a file of tokens (`.bin`: numbers of 16 bits, as nanoGPT writes them), or a
folder with `train.bin` and `val.bin`. With a tokenizer texts are cut into tokens once, into a file in the user's cache.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from ..wire.errors import LocalProblem, UsageError
from ..wire.ids import sha256
from .tokenizer import TOKENIZER_FILE, FileTokenizer

HELD_OUT = 20  # the last twentieth of each file is for testing
MAX_FILES = 100_000
MAX_PACKED_BYTES = 1 << 30  # of unpacked .gz files, which are kept in memory
MAX_LABELS = 10_000_000  # windows of which the file is listed
OPEN_FILES = 256  # at a time
CHECKED_WINDOWS = 64
DOCUMENT_WINDOWS = 16  # of a file, that count as one document at most
TRAIN_TOKENS, TEST_TOKENS = "train.bin", "val.bin"
CUT_AT = 1 << 20  # characters of a text that are cut into tokens at a time
CUT_TOGETHER = 8  # such parts, by several threads
_LOOKED_AT = 8192  # a file without a zero in its first bytes counts as text

Numbers = NDArray[Any]


class Piece(NamedTuple):
    """Tokens that belong together: a part of a file, or of an array in memory."""

    file: Path | None
    kind: str  # numpy's name of the tokens' type
    begin: int  # place of the first token
    windows: int
    array: Numbers | None = None
    name: str = ""  # of the file, for messages


@dataclass(frozen=True)
class Corpus:
    """What a source has to train and to test on."""

    train: Windows
    test: Windows


class Windows(Dataset[dict[str, Tensor]]):
    """Windows of `context` + 1 tokens as a map-style data set. Each begins with the last token of the one before it."""

    def __init__(self, pieces: Sequence[Piece], context: int, vocabulary: int) -> None:
        self.context = context
        self.vocabulary = vocabulary
        self._kind = np.uint8 if vocabulary <= 256 else np.int32  # of what training gets
        self._pieces = [piece for piece in pieces if piece.windows]
        self._ends = np.cumsum([piece.windows for piece in self._pieces], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        return {name: column[0] for name, column in self.__getitems__([row]).items()}

    def __getitems__(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Several windows as one column; ValueError when one has a token beyond the vocabulary."""
        wanted = np.asarray(rows, np.int64)
        where = np.searchsorted(self._ends, wanted, side="right")
        found = np.empty((len(wanted), self.context + 1), self._kind)
        for place, (row, number) in enumerate(zip(wanted.tolist(), where.tolist(), strict=True)):
            piece = self._pieces[number]
            begin = piece.begin + (row - int(self._ends[number]) + piece.windows) * self.context
            found[place] = self._checked(piece, _read(piece, begin, self.context + 1))
        return {"x": torch.from_numpy(found)}

    def _checked(self, piece: Piece, tokens: Numbers) -> Numbers:
        if piece.kind != "u1" and int(tokens.max()) >= self.vocabulary:
            raise ValueError(
                f"{piece.name} has the token {int(tokens.max())}, and the vocabulary has {self.vocabulary}"
            )
        return tokens

    @property
    def size_bytes(self) -> int:
        """The bytes that all windows would take in memory."""
        return len(self) * (self.context + 1) * np.dtype(self._kind).itemsize

    @property
    def targets(self) -> NDArray[np.int64] | None:
        """The file that each window is from; None where there is only one, or very much text."""
        if len(self._pieces) < 2 or len(self) > MAX_LABELS:
            return None
        return np.repeat(np.arange(len(self._pieces)), [piece.windows for piece in self._pieces])

    @property
    def documents(self) -> NDArray[np.int64]:
        """The document that each window is from: a file, or a part of a long one."""
        counts = [piece.windows for piece in self._pieces]
        parts = [-(-count // DOCUMENT_WINDOWS) for count in counts]
        firsts = np.cumsum([0, *parts])
        within = [first + np.arange(count) // DOCUMENT_WINDOWS for first, count in zip(firsts, counts, strict=False)]
        return np.concatenate(within).astype(np.int64) if within else np.empty(0, np.int64)

    def name_of(self, row: int) -> str:
        """The name of the file that a window is from."""
        return self._pieces[int(np.searchsorted(self._ends, row, side="right"))].name

    def columns(self) -> dict[str, Tensor]:
        """All windows in memory; ValueError as above."""
        found = np.empty((len(self), self.context + 1), self._kind)
        for piece, end in zip(self._pieces, self._ends.tolist(), strict=True):
            tokens = self._checked(piece, _read(piece, piece.begin, piece.windows * self.context + 1))
            windows = np.lib.stride_tricks.sliding_window_view(tokens, self.context + 1)[:: self.context]
            found[end - piece.windows : end] = windows
        return {"x": torch.from_numpy(found)}


def open_corpus(source: str, context: int, vocabulary: int, tokenizer: FileTokenizer | None = None) -> Corpus:
    """The windows of a source, of which only sizes and beginnings are read; UsageError when there is too little.

    With a `tokenizer` texts are cut by it, else they are bytes. Files of tokens are as they are.
    """
    path = Path(source).expanduser()
    if is_tokens(path):
        train, test = _token_pieces(path, context)
    else:
        pieces = list(_text_pieces(path)) if tokenizer is None else _cut(path, tokenizer)
        train, test = split(pieces, context)
    corpus = Corpus(Windows(train, context, vocabulary), Windows(test, context, vocabulary))
    if not len(corpus.train) or not len(corpus.test):
        tokens = "bytes" if tokenizer is None and not is_tokens(path) else "tokens"
        raise UsageError(
            f"--data {source[:200]!r} has too little text: one file must have {2 * context + 1:,} {tokens}, two times "
            f"the context and one; add text, or choose a smaller context with --task-option context={context // 4}"
        )
    _check(corpus)
    return corpus


def is_tokens(path: Path) -> bool:
    """Whether a source has tokens, not texts."""
    return path.suffix == ".bin" or (path / TRAIN_TOKENS).is_file()


def _check(corpus: Corpus) -> None:
    """UsageError when windows spread over the data have tokens that the model does not know."""
    rows = np.linspace(0, len(corpus.train) - 1, min(len(corpus.train), CHECKED_WINDOWS)).astype(np.int64)
    try:
        corpus.train.__getitems__(rows.tolist())
    except ValueError as error:
        raise UsageError(
            f"--data: {error}; are these numbers of 16 bits, and is --task-option vocabulary= right?"
        ) from None


# ---- texts ----


def _text_pieces(path: Path) -> Iterator[tuple[Piece, int]]:
    """The text files of a source as pieces, without windows yet, and how many bytes each has."""
    unpacked = 0
    for file in text_files(path):
        if file.suffix == ".gz":
            array = _unpacked(file, MAX_PACKED_BYTES - unpacked)
            unpacked += len(array)
            yield Piece(None, "u1", 0, 0, array, file.name), len(array)
        else:
            yield Piece(file, "u1", 0, 0, None, file.name), _size(file)


def text_files(path: Path) -> list[Path]:
    """The file itself, or the text files below a directory in the order of their names, without hidden ones."""
    if path.is_file():
        if _size(path) and not _is_text(path):
            raise UsageError(f"--data {str(path)[:200]!r} is no text; tokens must be in a file that ends in .bin")
        return [path]
    if not path.is_dir():
        raise UsageError(f"--data {str(path)[:200]!r} is neither a file nor a directory")
    found, others = [], 0
    for one in sorted(path.rglob("*")):
        if any(part.startswith(".") for part in one.relative_to(path).parts) or not one.is_file():
            continue
        if one.name == TOKENIZER_FILE:
            continue
        if _is_text(one):
            found.append(one)
        else:
            others += 1
        if len(found) > MAX_FILES:
            raise UsageError(f"--data {str(path)[:200]!r} has more than {MAX_FILES} files; name a smaller directory")
    if not found:
        what = f"; none of its {others} files is text" if others else "; put .txt files there"
        raise UsageError(f"--data {str(path)[:200]!r} has no text files in it{what}")
    return found


def _is_text(path: Path) -> bool:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            start = file.read(_LOOKED_AT)
    except (OSError, EOFError, zlib.error):
        return False
    return bool(start) and 0 not in start


def _unpacked(path: Path, most: int) -> Numbers:
    try:
        with gzip.open(path) as file:
            content = file.read(max(0, most) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise LocalProblem(f"{path} cannot be read ({str(error)[:120]})") from None
    if len(content) > most:
        raise UsageError(f"--data has packed files of more than {MAX_PACKED_BYTES >> 30} GiB; unpack them")
    return np.frombuffer(content, np.uint8)


def split(pieces: Sequence[tuple[Piece, int]], context: int) -> tuple[list[Piece], list[Piece]]:
    """Windows to train on and the last ones of each piece to test on; of few, the last one of the longest piece."""
    windows = [max(0, (tokens - 1) // context) for _, tokens in pieces]
    held = [count // HELD_OUT for count in windows]
    if sum(held) == 0 and windows:
        longest = int(np.argmax(windows))
        held[longest] = min(1, windows[longest])
    train, test = [], []
    for (piece, _), count, out in zip(pieces, windows, held, strict=True):
        train.append(piece._replace(windows=count - out))
        test.append(piece._replace(windows=out, begin=piece.begin + (count - out) * context))
    return train, test


# ---- tokens ----


def _token_pieces(path: Path, context: int) -> tuple[list[Piece], list[Piece]]:
    """The windows of token files to train and to test on."""
    if path.is_dir():
        files = [path / name for name in (TRAIN_TOKENS, TEST_TOKENS) if (path / name).is_file()]
    elif path.is_file():
        files = [path]
    else:
        raise UsageError(f"--data {str(path)[:200]!r} is neither a file nor a directory")
    pieces = [(Piece(file, "<u2", 0, 0, None, file.name), _token_count(file)) for file in files]
    if len(pieces) == 1:
        return split(pieces, context)
    train, test = ([piece._replace(windows=max(0, (count - 1) // context))] for piece, count in pieces)
    return train, test


def _token_count(file: Path) -> int:
    size = _size(file)
    if size % 2:
        raise UsageError(f"{file} has {size:,} bytes, an odd number; a file of tokens has numbers of 16 bits each")
    return size // 2


def _cut(path: Path, tokenizer: FileTokenizer) -> list[tuple[Piece, int]]:
    """The tokens of the texts of a source, in a file of the user's cache; it is made where it is not there yet."""
    from platformdirs import user_cache_path

    files = text_files(path)
    facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    folder = user_cache_path("p2pnode", appauthor=False) / "tokens"
    made = folder / f"{sha256(repr((tokenizer.id, facts)).encode()).hex()[:32]}.bin"
    counts = made.with_suffix(".counts.npy")
    kind = "<u2" if tokenizer.size <= 1 << 16 else "<u4"
    try:
        if not made.exists() or not counts.exists():
            folder.mkdir(parents=True, exist_ok=True)
            np.save(counts, _write_tokens(files, made, tokenizer, kind))
        lengths = np.load(counts).tolist()
    except OSError as error:
        raise LocalProblem(f"the tokens of {path} cannot be kept in {folder} ({error.strerror or error})") from None
    begins = np.cumsum([0, *lengths]).tolist()
    return [
        (Piece(made, kind, begin, 0, None, file.name), count)
        for file, begin, count in zip(files, begins, lengths, strict=False)
    ]


def _write_tokens(files: Sequence[Path], target: Path, tokenizer: FileTokenizer, kind: str) -> NDArray[np.int64]:
    """Writes the tokens of all files one after the other, whole or not at all; returns how many each has."""
    counts = []
    partial = target.with_suffix(".partial")
    with partial.open("wb") as out:
        for file in files:
            count = 0
            with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as raw:
                text = io.TextIOWrapper(raw, encoding="utf-8", errors="replace", newline="")
                while parts := [part for part in (text.read(CUT_AT) for _ in range(CUT_TOGETHER)) if part]:
                    for tokens in tokenizer.encode_all(parts):
                        out.write(np.asarray(tokens, kind).tobytes())
                        count += len(tokens)
            counts.append(count)
    partial.replace(target)
    return np.array(counts, np.int64)


# ---- reading ----


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise LocalProblem(f"{file} cannot be read ({error.strerror or error})") from None


def _read(piece: Piece, begin: int, count: int) -> Numbers:
    """Some tokens of a piece's file, which are read, not mapped: a file that shrinks must not end the process."""
    if piece.array is not None:
        return piece.array[begin : begin + count]
    assert piece.file is not None
    size = np.dtype(piece.kind).itemsize
    content = os.pread(_opened(piece.file).number, count * size, begin * size)
    if len(content) != count * size:
        raise LocalProblem(f"{piece.file} ends before byte {(begin + count) * size:,}; it was cut off")
    return np.frombuffer(content, piece.kind)


class _Opened:
    """A file that is open as long as this exists."""

    def __init__(self, file: Path) -> None:
        self.number = os.open(file, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


@lru_cache(maxsize=OPEN_FILES)
def _opened(file: Path) -> _Opened:
    try:
        return _Opened(file)
    except OSError as error:
        raise LocalProblem(f"{file} cannot be read ({error.strerror or error})") from None
