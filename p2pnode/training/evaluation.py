"""How often the read-out is looked at, and on how much of the test data: a small share of the time, at any speed."""

from __future__ import annotations

import numpy as np
import torch

from ..compression.weights import Floats
from ..tasks.task import Evaluation, Samples, length, rows
from ..wire.types import Seconds
from .cadence import SHARE, Cadence
from .trainer import Trainer

FEW = 64  # test samples, at the first look and at the least


class Evaluating:
    """One model's looks at the test data, `every` so many seconds where that can be afforded."""

    def __init__(self, trainer: Trainer, every: Seconds, now: Seconds) -> None:
        self._trainer = trainer
        self._every = every
        self._pace = Cadence(now, 0.0)
        self._count = FEW

    def due(self, now: Seconds) -> bool:
        return self._pace.due(now)

    def evaluate(self, weights: Floats) -> Evaluation:
        """Heavy. How good `weights` are on as much of the test data as time allows."""
        return self._trainer.evaluate(weights, spread(self._trainer.model_host.test, self._count))

    def done(self, begun: Seconds, now: Seconds) -> None:
        """It took that long: the next one takes as many samples as SHARE of the time is enough for."""
        self._count = next_count(self._count, length(self._trainer.model_host.test), now - begun, self._every)
        self._pace.done(begun, now, self._every)


def next_count(count: int, everything: int, took: Seconds, every: Seconds) -> int:
    """Samples to look at next, after `count` of them took that long."""
    affordable = everything if took <= 0 else int(count * SHARE * every / took)
    return max(FEW, min(affordable, everything))


def spread(samples: Samples, count: int) -> Samples:
    """About `count` of the samples, evenly spread over them; all when they are no more than that."""
    everything = length(samples)
    if everything <= count:
        return samples
    return rows(samples, torch.from_numpy(np.linspace(0, everything - 1, count).astype(np.int64)))
