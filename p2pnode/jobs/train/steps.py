"""The local steps of a round, in slices; between them entries of partners are let in (merging/deltaset/correction.py).

Each slice is one piece of work for the compute thread. A simulation computes a slice at its beginning; entries that
arrive while its time passes are for the next one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np

from ...compression.weights import Floats
from ...merging.capabilities import Capabilities
from ...runtime.seams import Seams
from ...training.background import feed_gradients
from ...training.trainer import Trainer, TrainResult
from ...wire.errors import Diverged
from ...wire.types import Seconds

MOST = 4  # slices in a round
SHARE = 0.005  # of a round that its corrections may take; changing slices takes about as much again


class StartsRounds(Protocol):
    """What rounds need of a policy, or of several that share out one vector."""

    can: Capabilities

    def start(self) -> Floats: ...


class RoundSteps:
    """Trains one model, round by round."""

    def __init__(
        self,
        seams: Seams,
        policy: StartsRounds,
        trainer: Trainer,
        round_seconds: Seconds,
        longest_piece: Callable[[], Seconds | None] = lambda: None,
    ) -> None:
        """`longest_piece` says how long the compute thread may be held, where others wait for it."""
        self._longest_piece = longest_piece
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
        for count, corrects in self._pieces(steps):
            if result is not None and result.steps < asked:
                break  # the node must rest
            asked += count
            begun, result = await self._seams.compute(
                partial(self._train_piece, begun, result, count, rate, corrects), count
            )
        assert result is not None
        await self._seams.compute(lambda: self._end(result))
        return begun, result

    def _pieces(self, steps: int) -> list[tuple[int, bool]]:
        """The round's steps in pieces of work, and whether entries of others are let in before each.

        Slices are longer than pieces where other jobs wait for the compute thread.
        """
        longest, speed, pieces = self._longest_piece(), self._trainer.speed, []
        for place, count in enumerate(split_steps(steps, self._count())):
            most = count if longest is None or not speed else max(1, int(longest * speed))
            cut = split_steps(count, -(-count // most))
            pieces += [(part, place > 0 and number == 0) for number, part in enumerate(cut)]
        return pieces

    def _count(self) -> int:
        """The number of slices, limited by the time that corrections may take."""
        if self._policy.can.corrections is None:
            return 1
        if math.isinf(self._cost):
            return 2  # to measure what a correction costs
        return 1 + min(MOST - 1, int(SHARE * self._round_seconds / max(self._cost, 1e-9)))

    def _train_piece(
        self, begun: Floats, before: TrainResult | None, count: int, rate: float, corrects: bool
    ) -> tuple[Floats, TrainResult]:
        if before is None:
            begun = weights = self._policy.start()
        else:
            weights = before.weights
        if corrects:
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
