"""How often training is interrupted, for evaluation and for saving: each gets a small share of the time."""

from __future__ import annotations

import torch

from ..compression.weights import Floats
from ..tasks.errors import task_errors
from ..tasks.task import Evaluation, Task
from ..wire.types import Seconds
from .trainer import Trainer

SHARE = 0.02  # of the time, for each kind of work that training waits for
FIRST_SAMPLE: Seconds = 30.0  # a model that has learned nothing has nothing to say
FEW = 64  # test samples of the first evaluation, and the minimum


class Cadence:
    """Decides when work that interrupts training may happen again, so that it takes at most SHARE of the time."""

    def __init__(self, now: Seconds, first: Seconds) -> None:
        self._next = now + first

    def due(self, now: Seconds) -> bool:
        """Whether it may happen now."""
        return now >= self._next

    def done(self, begun: Seconds, now: Seconds, minimum: Seconds) -> None:
        """Tells that it happened between `begun` and `now`. It is not due again for at least `minimum` seconds."""
        self._next = now + max(minimum, (now - begun) / SHARE)


class PeriodicSample:
    """Lets a language model say something now and then, as often as SHARE of the time allows."""

    def __init__(self, trainer: Trainer, every: Seconds, now: Seconds) -> None:
        self._trainer = trainer
        self._every = every
        self._cadence = Cadence(now, FIRST_SAMPLE)
        self._speaks = type(trainer.model_host.task).sample is not Task.sample

    def due(self, now: Seconds) -> bool:
        """Whether it is time for the next text. Never for a task without texts."""
        return self._speaks and self._cadence.due(now)

    def take(self, weights: Floats) -> str:
        """Heavy. A text of the model with these weights; "" when it has none to give."""
        host = self._trainer.model_host
        with self._trainer.fitted(weights), task_errors(host.task, "sample"), torch.no_grad():
            host.model.eval()
            return host.task.sample(host.model)

    def done(self, begun: Seconds, now: Seconds) -> None:
        """Tells how long it took, which decides when the next one is due."""
        self._cadence.done(begun, now, self._every)


class PeriodicEvaluation:
    """Evaluates one model every `every` seconds, on as many test samples as SHARE of the time allows."""

    def __init__(self, trainer: Trainer, every: Seconds, now: Seconds) -> None:
        self._trainer = trainer
        self._every = every
        self._cadence = Cadence(now, 0.0)
        self._count = FEW

    def due(self, now: Seconds) -> bool:
        """Whether it is time to evaluate."""
        return self._cadence.due(now)

    def evaluate(self, weights: Floats) -> Evaluation:
        """Heavy. How good `weights` are on as many test samples as time allows."""
        return self._trainer.evaluate(weights, self._trainer.model_host.test.spread(self._count))

    def done(self, begun: Seconds, now: Seconds) -> None:
        """Tells how long the evaluation took, which decides how many samples the next one takes.

        Where that is far more, it comes as soon as SHARE allows: what few samples say is soon replaced.
        """
        before = self._count
        self._count = next_count(before, len(self._trainer.model_host.test), now - begun, self._every)
        self._cadence.done(begun, now, 0.0 if self._count >= 2 * before else self._every)


def next_count(count: int, available: int, took: Seconds, every: Seconds) -> int:
    """The samples to evaluate next, after `count` of the `available` ones took so long."""
    affordable = available if took <= 0 else int(count * SHARE * every / took)
    return max(FEW, min(affordable, available))
