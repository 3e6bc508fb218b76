"""Digits that are read by index, with rows that cannot be read, and digits that come as a stream."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset

from p2pnode.tasks.digits import Digits


class Rows(Dataset[Any]):
    """Digits one by one; every `bad`-th raises."""

    def __init__(self, samples: Any, bad: int = 0) -> None:
        self.samples = samples
        self.bad = bad
        self.targets = samples["y"].tolist()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> Any:
        if self.bad and row % self.bad == 0:
            raise OSError(f"picture {row} is damaged")
        return self.samples["x"][row], self.targets[row]


class ByIndex(Digits):
    name = "by-index"
    bad = 0

    def data(self) -> Any:
        return Rows(Digits().data(), self.bad)

    def test_data(self) -> Any:
        return Rows(Digits().test_data())


class Passing(IterableDataset[Any]):
    def __iter__(self) -> Any:
        samples = Digits().data()
        for row in torch.randperm(len(samples["y"])).tolist():
            yield samples["x"][row], samples["y"][row]


class Streamed(Digits):
    name = "streamed"

    def data(self) -> Any:
        return Passing()


class Vanishing(Rows):
    """Rows that cannot be read for a while."""

    def __init__(self, samples: Any) -> None:
        super().__init__(samples)
        self.reads = 0

    def __getitem__(self, row: int) -> Any:
        self.reads += 1
        if 1 < self.reads < 140:
            raise OSError("the disk is away")
        return super().__getitem__(row)


class Blind(Digits):
    name = "blind"

    def test_data(self) -> Any:
        return Vanishing(Digits().test_data())

    def probe(self) -> Any:
        return Digits().probe()
