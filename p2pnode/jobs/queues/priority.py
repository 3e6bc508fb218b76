"""Which queue is next: a score for each, the sum of four parts, every one with its reason.

convergence   1 / passes over the data since the accuracy last changed significantly: what still learns goes first
complexity    the logarithm of the model's parameters, against the largest model's
length        how full the queue is, so that no queue becomes a bottleneck
idle          how much of its time the owner has nothing to do
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from typing import Annotated

import msgspec

EVERY_EIGHTH = 8  # pick: it goes to the queue that waited longest, so that nothing starves
LEAST_NEED = 0.05
SIGNIFICANT = 0.005  # change of accuracy, and two standard errors of it
SIGNIFICANT_LOSS = 0.02  # relative change of the loss of a task without accuracy
CONVERGED = 30.0  # passes over the data without a significant change,
CONVERGED_TESTS = 10  # and tests, which come by the clock

MOST_WEIGHT = 10.0
Weight = Annotated[float, msgspec.Meta(ge=0.0, le=MOST_WEIGHT)]


class PriorityWeights(msgspec.Struct, frozen=True):
    """How much each part of the score counts, 0 to 10."""

    convergence: Weight = 1.0
    complexity: Weight = 0.25
    length: Weight = 1.0
    idle: Weight = 0.5


@dataclass(frozen=True)
class QueueFacts:
    """What the score of a queue follows from."""

    parameters: int
    length: int
    capacity: int
    passes: float  # over the data, since the accuracy last changed significantly
    idle: float  # of the owner, 0 to 1


@dataclass(frozen=True)
class Score:
    """The score of a queue and its parts, each already weighted."""

    convergence: float
    complexity: float
    length: float
    idle: float
    facts: QueueFacts

    @property
    def total(self) -> float:
        return self.convergence + self.complexity + self.length + self.idle

    @property
    def reason(self) -> str:
        """What each part follows from, the largest part first."""
        facts = self.facts
        parts = (
            (self.convergence, f"{facts.passes:.1f} passes since it got better"),
            (self.complexity, f"{facts.parameters:,} weights"),
            (self.length, f"{facts.length} of {facts.capacity} waiting"),
            (self.idle, f"owner idle {facts.idle:.0%}"),
        )
        return ", ".join(words for _, words in sorted(parts, key=lambda part: -part[0]))


def score(facts: QueueFacts, largest: int, weights: PriorityWeights) -> Score:
    """The score of a queue, where `largest` is the number of parameters of the largest model."""
    return Score(
        weights.convergence / max(1.0, facts.passes),
        weights.complexity * log(max(2, facts.parameters)) / log(max(2, largest)),
        weights.length * min(1.0, facts.length / facts.capacity),
        weights.idle * min(1.0, max(0.0, facts.idle)),
        facts,
    )


def pick(scores: Mapping[str, float], waited: Sequence[str], number: int) -> str:
    """The queue whose turn it is: that of the highest score, and every eighth time the one that waited longest.

    `waited` has the same queues, the one that waited longest first; equal scores go to who waited longer.
    """
    if number % EVERY_EIGHTH == EVERY_EIGHTH - 1:
        return waited[0]
    return max(waited, key=lambda queue: scores[queue])  # max takes the first of equals


class Turns:
    """Turns in proportion to needs that change: of those there, the one that has had least for its need is next."""

    def __init__(self, had: Mapping[str, float]) -> None:
        """`had`: where each begins."""
        self._had = dict(had)  # turns, each divided by the need at that time
        self._level = 0.0  # at which whoever is new begins

    def next(self, needs: Mapping[str, float]) -> str:
        """Whose turn it is. A need below LEAST_NEED counts as that, so that nothing starves."""
        for name in needs:
            self._had[name] = max(self._had.get(name, 0.0), self._level)  # turns it was not there for are no claim
        chosen = min(needs, key=lambda name: self._had[name])
        self._level = self._had[chosen]
        self._had[chosen] += 1.0 / max(LEAST_NEED, needs[chosen])
        return chosen


class Plateau:
    """Passes over the data since a model last got significantly better or worse on test data.

    That is by accuracy, or by the loss of a task that has none.
    """

    def __init__(self) -> None:
        self._value: float | None = None
        self._since = 0.0
        self._tests = 0  # without a significant change

    def note_accuracy(self, accuracy: float, samples: int, passes: float) -> None:
        """Takes in the accuracy on `samples` test samples, after `passes` passes over the data."""
        error = sqrt(max(1e-9, accuracy * (1 - accuracy)) * 2 / max(1, samples))
        self._note(accuracy, max(SIGNIFICANT, 2 * error), passes)

    def note_loss(self, loss: float, passes: float) -> None:
        """The test loss of a task without accuracy."""
        self._note(loss, SIGNIFICANT_LOSS * abs(loss), passes)

    def _note(self, value: float, significant: float, passes: float) -> None:
        self._tests += 1
        if self._value is None or abs(value - self._value) > significant:
            self._value, self._since, self._tests = value, passes, 0

    def converged(self, now: float) -> bool:
        """Whether many passes and many tests have changed nothing, where `now` passes have been made in all."""
        return self._tests >= CONVERGED_TESTS and self.passes(now) >= CONVERGED

    def passes(self, now: float) -> float:
        """Since the last significant change, where `now` passes have been made in all."""
        return max(0.0, now - self._since)
