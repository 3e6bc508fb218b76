"""Digits of which every tenth has a wrong label."""

from __future__ import annotations

import torch

from p2pnode.tasks.digits import Digits
from p2pnode.tasks.task import Samples

SEED = 5
SHARE = 0.1


class NoisyDigits(Digits):
    name = "noisy-digits"

    def data(self) -> Samples:
        samples = super().data()
        generator = torch.Generator().manual_seed(SEED)
        wrong = torch.rand(len(samples["y"]), generator=generator) < SHARE
        other = torch.randint(1, 10, wrong.shape, generator=generator)
        return {**samples, "y": torch.where(wrong, (samples["y"] + other) % 10, samples["y"])}
