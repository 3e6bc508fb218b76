"""The local steps of a round, in slices; between slices entries of partners are let in (deltaset/correction.py).

Each slice is one piece of work for the compute thread. A simulation computes a slice at its beginning; entries that
arrive while its time passes are for the next one.
"""

from __future__ import annotations

import math

import numpy as np

from ...compression.weights import Floats
from ...merging.policy import Policy
from ...runtime.seams import Seams
from ...training.background import feed_gradients
from ...training.trainer import Trainer, TrainResult
from ...wire.errors import Diverged
from ...wire.types import Seconds

MOST = 4  # slices in a round
SHARE = 0.005  # of a round that its corrections may take; changing slices takes about as much again


class RoundSteps:
    """Trains one model, round by round."""

    def __init__(self, seams: Seams, policy: Policy, trainer: Trainer, round_seconds: Seconds) -> None:
        self._seams = seams
        self._policy = policy
        self._trainer = trainer
        self._round_seconds = round_seconds
        self._lead = 0  # how many more steps the run has done than this node
        self._cost: Seconds = math.inf  # of the cheapest correction so far; a busy machine makes others slow

    async def train(self, steps: int, rate: float, at: int = 0) -> tuple[Floats, TrainResult]:
        """Do `steps` local steps; returns their start, corrected by what arrived, and their result. May raise Diverged.

        `at` is how many steps the run has done, if that is more than this node's own.
        """
        self._lead = max(0, at - self._trainer.steps_done)
        begun, result, asked = np.empty(0, np.float32), None, 0
        for count in split_steps(steps, self._count()):
            if result is not None and result.steps < asked:
                break  # the node must rest
            asked += count
            begun, result = await self._seams.compute(
                lambda begun=begun, before=result, count=count: self._slice(begun, before, count, rate),  # type: ignore[misc]
                count,
            )
        assert result is not None
        await self._seams.compute(lambda: self._end(result))
        return begun, result

    def _count(self) -> int:
        """The number of slices, limited by the time that corrections may take."""
        if self._policy.can.corrections is None:
            return 1
        if math.isinf(self._cost):
            return 2  # to measure what a correction costs
        return 1 + min(MOST - 1, int(SHARE * self._round_seconds / max(self._cost, 1e-9)))

    def _slice(self, begun: Floats, before: TrainResult | None, count: int, rate: float) -> tuple[Floats, TrainResult]:
        if before is None:
            begun = weights = self._policy.start()
        else:
            weights = before.weights
            self._correct(begun, weights)
        result = self._trainer.steps(weights, count, at=self._lead + self._trainer.steps_done, rate=rate)
        return begun, result if before is None else before.then(result)

    def _correct(self, begun: Floats, weights: Floats) -> None:
        corrections, clock = self._policy.can.corrections, self._seams.clock
        assert corrections is not None
        at = clock.monotonic()
        if corrections.correct(begun, weights):
            self._cost = min(self._cost, clock.monotonic() - at)

    def _end(self, result: TrainResult) -> None:
        if not np.isfinite(result.weights).all():
            self._trainer.reset_optimizer()
            done = self._trainer.steps_done
            raise Diverged(f"weights were not finite after {done} local steps", result.steps, 0.0)
        feed_gradients(self._policy.can.selector, self._trainer, result.weights)


def split_steps(steps: int, slices: int) -> list[int]:
    """Split steps into at most `slices` nearly equal parts, none of them empty."""
    shortest, longer = divmod(steps, slices)
    return [shortest + (place < longer) for place in range(min(steps, slices))]
