"""IDX files, the format of MNIST and its kin: plain ones are memory-mapped, gzipped ones read."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..wire.errors import LocalProblem

_BYTES = 0x08  # the only element type these data sets use
MAX_BYTES = 1 << 31


def find_idx(directory: Path, name: str) -> Path | None:
    """The file `name` in a directory, plain or gzipped, with either separator people use in its name."""
    for written in (name, name.replace("-idx", ".idx")):
        for path in (directory / written, directory / f"{written}.gz"):
            if path.is_file():
                return path
    return None


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in an IDX file of bytes; LocalProblem when it is something else or incomplete.

    A plain file stays on disk, mapped so that several processes share its pages; writes would stay private.
    """
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                raw = np.frombuffer(bytearray(file.read(MAX_BYTES)), np.uint8)
        else:
            raw = np.memmap(path, np.uint8, mode="c")
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise LocalProblem(f"{path} cannot be read ({str(error)[:120]}); get it again") from None
    return _parse(raw, path)


def _parse(raw: NDArray[np.uint8], path: Path) -> NDArray[np.uint8]:
    head = raw[:4].tolist()
    if len(head) < 4 or head[:3] != [0, 0, _BYTES] or not 1 <= head[3] <= 4:
        raise LocalProblem(f"{path} is not an IDX file of bytes; get it again")
    start = 4 + 4 * head[3]
    shape = tuple(int(size) for size in np.frombuffer(raw[4:start].tobytes(), ">u4"))
    if len(raw) < start or len(raw) - start != math.prod(shape):
        raise LocalProblem(f"{path} is incomplete ({len(raw)} bytes for {'×'.join(map(str, shape))}); get it again")
    return raw[start:].reshape(shape)
