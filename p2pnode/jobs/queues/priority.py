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

Weight = Annotated[float, msgspec.Meta(ge=0.0, le=10.0)]


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

    @property
    def total(self) -> float:
        return self.convergence + self.complexity + self.length + self.idle

    @property
    def reason(self) -> str:
        """The parts in words, the largest first."""
        parts = {
            "still learning": self.convergence,
            "large model": self.complexity,
            "long queue": self.length,
            "idle owner": self.idle,
        }
        shown = sorted(parts.items(), key=lambda part: -part[1])
        return ", ".join(f"{name} {value:.2f}" for name, value in shown if value >= 0.005)


def score(facts: QueueFacts, largest: int, weights: PriorityWeights) -> Score:
    """The score of a queue, where `largest` is the number of parameters of the largest model."""
    return Score(
        weights.convergence / max(1.0, facts.passes),
        weights.complexity * log(max(2, facts.parameters)) / log(max(2, largest)),
        weights.length * min(1.0, facts.length / facts.capacity),
        weights.idle * min(1.0, max(0.0, facts.idle)),
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

    def __init__(self, names: Sequence[str]) -> None:
        self._had = dict.fromkeys(names, 0.0)  # turns, each divided by the need at that time
        self._level = 0.0

    def next(self, needs: Mapping[str, float]) -> str:
        """Whose turn it is. A need below LEAST_NEED counts as that, so that nothing starves."""
        for name in needs:
            self._had[name] = max(self._had[name], self._level)  # turns it was not there for are no claim
        chosen = min(needs, key=lambda name: self._had[name])
        self._level = self._had[chosen]
        self._had[chosen] += 1.0 / max(LEAST_NEED, needs[chosen])
        return chosen


class Plateau:
    """Passes over the data since a model's accuracy last changed significantly."""

    def __init__(self) -> None:
        self._accuracy: float | None = None
        self._since = 0.0

    def note(self, accuracy: float, samples: int, passes: float) -> None:
        """Takes in the accuracy on `samples` test samples, after `passes` passes over the data."""
        before = self._accuracy
        error = sqrt(max(1e-9, accuracy * (1 - accuracy)) * 2 / max(1, samples))
        if before is None or abs(accuracy - before) > max(SIGNIFICANT, 2 * error):
            self._accuracy, self._since = accuracy, passes

    def passes(self, now: float) -> float:
        """Since the last significant change, where `now` passes have been made in all."""
        return max(0.0, now - self._since)
