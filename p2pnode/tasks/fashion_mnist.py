"""Fashion-MNIST: 60,000 + 10,000 pictures of clothes, 28×28 pixels, ten classes; from IDX files on this machine."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import nn

from ..wire.errors import LocalProblem, UsageError
from .digits import Scale
from .idx import find_idx, read_idx
from .task import Samples, Task

SYSTEM = Path("/usr/share/datasets/fashion-mnist")  # where Debian's package puts them
CLASSES = 10


class FashionMnist(Task):
    """A perceptron with two hidden layers: about 235,000 parameters. MNIST's own files work as well."""

    name = "fashion-mnist"
    batch_size = 32
    learning_rate = 0.02
    hidden = 256
    source = ""  # a directory with the four files; empty: the Debian package's

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
    """Images and labels of `train` or `t10k`, each read once per process."""
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
