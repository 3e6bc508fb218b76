"""Two mixtures of text from files that most Linux machines have: eight files a mixture, two of each of four sources.

Mixture `a` was used for choosing constants, `b` never was. With four peers and the split `parts` each peer has one
source; with eight, half of one.
"""

from __future__ import annotations

import gzip
import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from p2pnode.wire.errors import UsageError

SOURCE_BYTES = 1 << 20
PIECE_BYTES = 1 << 14  # of one file, so that a source has many
FILES = 2  # of a source


@dataclass(frozen=True)
class Source:
    """Files of one kind: folders, of which the first with enough text counts, and the pattern of their names."""

    name: str
    folders: tuple[str, ...]
    patterns: tuple[str, ...]


MIXTURES: dict[str, tuple[Source, ...]] = {
    "a": (
        Source("python", (sysconfig.get_paths()["stdlib"], "/usr/lib/python3"), ("*.py",)),
        Source("manuals", ("/usr/share/man/man1", "/usr/share/man"), ("*.gz", "*.[1-8]")),
        Source("headers", ("/usr/include",), ("*.h",)),
        Source("html", ("/usr/share/doc",), ("*.html",)),
    ),
    "b": (
        Source("perl", ("/usr/share/perl", "/usr/lib"), ("*.pm", "*.pod")),
        Source("copyright", ("/usr/share/doc",), ("copyright",)),
        Source("javascript", ("/usr/lib/node_modules", "/usr/share"), ("*.js",)),
        Source("markdown", ("/usr/share/doc", "/usr/lib/node_modules"), ("*.md",)),
    ),
}


def write_mixture(name: str, folder: Path) -> str:
    """Write the files of a mixture below `folder`; returns a hash of them. UsageError when a source has too little."""
    hashed = blake3()
    for place, source in enumerate(MIXTURES[name]):
        text = _read(source)
        hashed.update(text)
        half = len(text) // FILES
        for number in range(FILES):
            (folder / f"{place}-{source.name}-{number}.txt").write_bytes(text[number * half : (number + 1) * half])
    return hashed.hexdigest(8)


def _read(source: Source) -> bytes:
    for folder in source.folders:
        found = b"".join(_pieces(Path(folder), source.patterns))
        if len(found) >= SOURCE_BYTES:
            return found[:SOURCE_BYTES]
    raise UsageError(
        f"fewer than {SOURCE_BYTES >> 20} MiB of {source.name} below {' or '.join(source.folders)}: "
        "this benchmark needs a machine with such files, or --data FOLDER with texts of your own"
    )


def _pieces(folder: Path, patterns: tuple[str, ...]) -> Iterator[bytes]:
    """The beginnings of files, spread evenly over the folder, in an order that does not depend on the file system."""
    paths = sorted(path for pattern in patterns for path in folder.rglob(pattern) if path.is_file())
    step = max(1, len(paths) * PIECE_BYTES // (4 * SOURCE_BYTES))  # many files are shorter than a piece
    for first in range(step):
        for path in paths[first::step]:
            try:
                with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                    piece = file.read(PIECE_BYTES)
            except (OSError, EOFError, zlib.error):
                continue
            if piece and 0 not in piece:
                yield piece
