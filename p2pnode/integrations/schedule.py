"""A learning-rate schedule that follows the steps of the lineage, so that a joiner trains at the run's rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim.lr_scheduler import LambdaLR

from ..jobs.loop.weights import plain_optimizer as plain

__all__ = ["LineageLR", "plain"]


class LineageLR(LambdaLR):
    """LambdaLR over the lineage's steps. Call `step()` after each step of the optimizer, as usual."""

    def __init__(self, optimizer: Any, rate: Callable[[int], float], steps: Callable[[], int]) -> None:
        self._steps = steps
        super().__init__(optimizer, rate)

    def step(self, epoch: int | None = None) -> None:
        self.last_epoch = self._steps() - 1  # which torch increments
        super().step()
