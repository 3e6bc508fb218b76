"""What a newcomer's own data do to a model, before it has a place: a short training alone shows which circle it fits.

From the run's first weights, which belong to no circle: what is trained from a circle's weights looks like that circle,
whatever the data are (docs/log.md). The steps are thrown away; a newcomer goes on from its circle's weights.
"""

from __future__ import annotations

from ..discovery.services import Services
from ..wire.errors import LocalProblem
from ..wire.types import Seconds
from .fingerprinter import Fingerprinter
from .rounds import lam_for
from .trainer import Trainer

ENOUGH = 100  # local steps
FEWEST = 10  # that tell which circle has like data; 5 did not


class NewcomerProbe:
    """Taken once, and only if somebody asks."""

    def __init__(
        self, services: Services, trainer: Trainer, taker: Fingerprinter | None, round_seconds: Seconds
    ) -> None:
        self._services = services
        self._trainer = trainer
        self._taker = taker
        self._limit = round_seconds
        self._taken: bytes | None = None

    async def fingerprint(self) -> bytes:
        """Of a model that only this node's data have trained, for a round; empty when it would say nothing."""
        if self._taken is None:
            speed = self._trainer.speed
            steps = round(lam_for(speed, self._limit, ENOUGH)) if speed else ENOUGH
            self._taken = b""
            if self._taker is not None and self._trainer.samples and steps >= FEWEST:
                taker = self._taker
                self._taken = await self._services.seams.compute(lambda: self._take(taker, steps), steps)
        return self._taken

    def _take(self, taker: Fingerprinter, steps: int) -> bytes:
        """Heavy. With an optimizer and an order of its own, so that training begins as if this had not been."""
        clock, brake, model_host = self._services.seams.clock.monotonic, self._trainer.brake, self._trainer.model_host
        end = clock() + self._limit
        alone = Trainer(model_host, self._trainer.pool.own, brake=lambda: brake() or clock() >= end)
        try:
            trained = alone.steps(model_host.genesis, steps)
            return taker.look(alone, trained.weights) if trained.steps >= FEWEST else b""
        except LocalProblem:
            return b""  # said again in the first round, if it is so then
