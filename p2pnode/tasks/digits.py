"""Handwritten digits, 8×8 pixels, ten classes: small enough to carry along, hard enough to gain from company.

The data are the 1,797 images of scikit-learn's `load_digits`; DIGITS.txt beside this file says where they come from.
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
SPLIT_SEED = 1998  # the same part is held out everywhere


class Scale(nn.Module):
    """Whole-number pixels to 0..1, one row per image."""

    def __init__(self, largest: float) -> None:
        super().__init__()
        self.largest = largest

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1).float() / self.largest


class Digits(Task):
    """A perceptron with one hidden layer: about 9,600 parameters."""

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
    """Training and test samples; each is read once per process."""
    raw = torch.frombuffer(bytearray(lzma.decompress(FILE.read_bytes())), dtype=torch.uint8)
    samples = {"x": raw[SAMPLES:].view(SAMPLES, 8, 8), "y": raw[:SAMPLES].long()}
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(SPLIT_SEED))
    return rows(samples, order[TEST_SAMPLES:]), rows(samples, order[:TEST_SAMPLES])
