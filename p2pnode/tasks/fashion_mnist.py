"""The built-in task `fashion-mnist`: 60,000 + 10,000 pictures of clothes, 28×28 pixels, ten classes.

The data are IDX files on this machine, plain or gzipped.
"""

from __future__ import annotations

import gzip
import math
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ..wire.errors import LocalProblem, UsageError
from .digits import Scale
from .task import Samples, Task

SYSTEM = Path("/usr/share/datasets/fashion-mnist")  # where Debian's package puts them
CLASSES = 10
MAX_BYTES = 1 << 31
_IDX_BYTES = 0x08  # the only element type that these data sets use


class FashionMnist(Task):
    """A perceptron with two hidden layers, about 235,000 parameters. The files of MNIST work too."""

    name = "fashion-mnist"
    batch_size = 32
    learning_rate = 0.02
    hidden = 256
    source = ""  # a directory with the four files; empty: that of the Debian package

    def model(self) -> nn.Module:
        half = max(1, self.hidden // 2)
        return nn.Sequential(
            Scale(255.0),
            nn.Linear(28 * 28, self.hidden), nn.ReLU(),
            nn.Linear(self.hidden, half), nn.ReLU(),
            nn.Linear(half, CLASSES),
        )  # fmt: skip

    def data(self) -> Samples:
        return _read(self.source, "train")

    def test_data(self) -> Samples:
        return _read(self.source, "t10k")


@cache
def _read(source: str, part: str) -> Samples:
    """The images and labels of `train` or `t10k`, read once per process."""
    directory = Path(source).expanduser() if source else SYSTEM
    if source and not directory.is_dir():
        raise UsageError(f"--data {source[:200]!r} is not a directory; give the one with the Fashion-MNIST files")
    images, labels = (_file(directory, f"{part}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    x, y = read_idx(images), read_idx(labels)
    if x.shape[1:] != (28, 28) or y.shape != x.shape[:1] or y.max(initial=0) >= CLASSES:
        raise LocalProblem(f"{images} and {labels.name} do not fit together as 28×28 pictures of {CLASSES} classes")
    return {"x": torch.from_numpy(x), "y": torch.from_numpy(y.astype("int64"))}


def _file(directory: Path, name: str) -> Path:
    found = find_idx(directory, name)
    if found is None:
        raise LocalProblem(
            f"{directory} has no {name}[.gz]; get Fashion-MNIST with `apt install dataset-fashion-mnist`, "
            "or name the directory that has its files with --data DIR"
        )
    return found


# ---- IDX, the format of MNIST and similar data sets ----


def find_idx(directory: Path, name: str) -> Path | None:
    """The file `name` in a directory, plain or gzipped, with either separator that people use in its name."""
    for written in (name, name.replace("-idx", ".idx")):
        for path in (directory / written, directory / f"{written}.gz"):
            if path.is_file():
                return path
    return None


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in an IDX file of bytes; LocalProblem when it is another file or incomplete.

    A plain file is memory-mapped, so that several processes share its pages; writes stay private.
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
    if len(head) < 4 or head[:3] != [0, 0, _IDX_BYTES] or not 1 <= head[3] <= 4:
        raise LocalProblem(f"{path} is not an IDX file of bytes; get it again")
    start = 4 + 4 * head[3]
    shape = tuple(int(size) for size in np.frombuffer(raw[4:start].tobytes(), ">u4"))
    if len(raw) < start or len(raw) - start != math.prod(shape):
        raise LocalProblem(f"{path} is incomplete ({len(raw)} bytes for {'×'.join(map(str, shape))}); get it again")
    return raw[start:].reshape(shape)
