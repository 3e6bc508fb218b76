"""A newcomer trains shortly by itself to find out which circle has similar data.

It starts from the run's first weights, which belong to no circle: a model trained from a circle's weights looks like
that circle, whatever its data are (docs/log.md). The steps are discarded; it goes on from its circle's weights.
"""

from __future__ import annotations

from ..discovery.services import Services
from ..wire.errors import LocalProblem
from ..wire.types import Seconds
from .fingerprinter import Fingerprinter
from .rounds import mean_steps
from .trainer import Trainer

ENOUGH = 100  # local steps
FEWEST = 10  # local steps that show which circle has similar data; 5 did not


class NewcomerProbe:
    """The fingerprint of a model that only this node's data have trained. It is taken once, when it is first needed."""

    def __init__(
        self, services: Services, trainer: Trainer, taker: Fingerprinter | None, round_seconds: Seconds
    ) -> None:
        self._services = services
        self._trainer = trainer
        self._taker = taker
        self._limit = round_seconds
        self._taken: bytes | None = None

    async def fingerprint(self) -> bytes:
        """The fingerprint after about a round of training; empty when there are too few steps or no samples."""
        if self._taken is None:
            speed = self._trainer.speed
            steps = round(mean_steps(speed, self._limit, ENOUGH)) if speed else ENOUGH
            self._taken = b""
            if self._taker is not None and self._trainer.samples and steps >= FEWEST:
                taker = self._taker
                self._taken = await self._services.seams.compute(lambda: self._take(taker, steps), steps)
        return self._taken

    def _take(self, taker: Fingerprinter, steps: int) -> bytes:
        """Heavy. Uses its own optimizer and order of samples, so that training is not affected."""
        clock, brake, model_host = self._services.seams.clock.monotonic, self._trainer.brake, self._trainer.model_host
        end = clock() + self._limit
        alone = Trainer(model_host, self._trainer.pool.own, brake=lambda: brake() or clock() >= end)
        try:
            trained = alone.steps(model_host.genesis, steps)
            return taker.look(alone, trained.weights) if trained.steps >= FEWEST else b""
        except LocalProblem:
            return b""  # the first round reports it, if it is still so
