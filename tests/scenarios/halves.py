"""Digits dealt unfairly: the first half of the samples lacks three classes, the second half three others."""

from __future__ import annotations

import torch

from p2pnode.tasks.digits import Digits
from p2pnode.tasks.task import Samples, rows


class Halves(Digits):
    name = "halves"

    def data(self) -> Samples:
        samples = super().data()
        classes = samples["y"]
        half = torch.where(classes < 3, 0, torch.where(classes >= 7, 1, torch.arange(len(classes)) % 2))
        return rows(samples, torch.argsort(half, stable=True))
