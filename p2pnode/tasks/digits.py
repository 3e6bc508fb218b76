"""The built-in task `digits`: handwritten digits, 8×8 pixels, ten classes. Its data are part of this package.

They are the 1,797 images of scikit-learn's `load_digits`; DIGITS.txt in this folder names their source.
"""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from .task import Samples, Task, rows

FILE = Path(__file__).with_name("digits.bin.xz")
SAMPLES = 1797
TEST_SAMPLES = 360
SPLIT_SEED = 1998  # fixed, so that all nodes hold out the same samples


class Scale(nn.Module):
    """Maps integer pixels to 0..1, one row per image."""

    def __init__(self, largest: float) -> None:
        super().__init__()
        self.largest = largest

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).float() / self.largest


class Digits(Task):
    """A perceptron with one hidden layer, about 9,600 parameters."""

    name = "digits"
    batch_size = 32
    learning_rate = 0.05
    hidden = 128

    def model(self) -> nn.Module:
        return nn.Sequential(Scale(16.0), nn.Linear(64, self.hidden), nn.ReLU(), nn.Linear(self.hidden, 10))

    def data(self) -> Samples:
        return _split()[0]

    def test_data(self) -> Samples:
        return _split()[1]


@cache
def _split() -> tuple[Samples, Samples]:
    """Training and test samples, read once per process."""
    raw = torch.frombuffer(bytearray(lzma.decompress(FILE.read_bytes())), dtype=torch.uint8)
    samples = {"x": raw[SAMPLES:].view(SAMPLES, 8, 8), "y": raw[:SAMPLES].long()}
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(SPLIT_SEED))
    return rows(samples, order[TEST_SAMPLES:]), rows(samples, order[:TEST_SAMPLES])
