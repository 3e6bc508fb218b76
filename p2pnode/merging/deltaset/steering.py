"""Chooses an author's outer step (γ of γ/G), the density of its entries and the decay β of its residual. Pure.

Adding the plain mean (γ = 1) is right when every coordinate is sent. When few are sent, the step can be too short; the
best γ depends on model and optimizer (SGD on pictures: 1, AdamW on text: about 2). An author measures two things:

*How much slope is left.* Let u be the change of the weights by others' entries since the last round began, p the
author's own progress in the last round and p' in this one. Along u the loss is nearly a parabola and progress is
proportional to its slope. So (u·p')/(u·p) is the part of the slope that the others' step left over: 1 if the step was
far too short, 0 if it reached the minimum, negative if it went too far. The author's own entries are not part of u, so
others' work is judged by the author's own data. More entries are always under way, so the target is `LEFT` = half.
*How far the weights move.* If the weights move several times as far in a round as local steps do, slopes say little: a
swarm can oscillate across a valley and measure gains all the time (text with γ = 3: half of the slope left, and the
loss 0.5 nats worse). So the movement is kept within `REACH` times the author's own progress.

γ slowly follows the smaller of both, between 1 and MOST. The density (the share of coordinates that all others send in
a round) follows the first measure, from FEW in an entry to MANY: more is sent while there is slope left. So entries are
largest early, when weights change most (Fashion-MNIST, one run each, same bytes: much first 85.5 %, evenly 85.5 %,
little first 85.1 %). AdamW on text stays at MANY; SGD goes down to FEW.
The remaining slope also says how quickly the residual becomes outdated: local steps that start from weights that lag
make the same progress again, so unsent progress need not be kept as long (β 0.95 against 0.98, one run each: text 0.02
nats better, Fashion-MNIST 0.3 pp worse).

*Where progress is spread evenly* over the coordinates, all this is different. AdamW and Muon change all coordinates by
about as much, (mean |p|)² / mean p² = 0.57 to 0.85; SGD changes few of them much, 0.16 to 0.29. An entry then carries a
small part of a round whatever is chosen, own progress says little about others' entries (their cosine falls below 0.05,
and the measures above end at the fewest coordinates: text, 500 steps, 0.5 nats too much), and unsent progress is soon
outdated. So entries keep the density `EVEN_SHARE`, the step is `MOST` (less among one or two) and β is `EVEN_BETA`.
Everything is measured on a sample of the coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...compression.delta import SparseDelta
from ...compression.weights import Floats, dot, from_units, norm
from ...storage.checkpoints import Arrays

LEFT = 0.5  # of the slope, after the others' step
REACH = 1.5  # of the weights in a round, relative to own progress
MOST = 2.0  # γ
BEGIN, MANY = 0.1, 0.15  # of the coordinates, in a round, from all others together
FEW = 0.0040  # of the coordinates, in an entry
SHORT, LONG = 0.95, 0.99  # β, where much of the slope is left and where little is
EVEN = 0.4  # (mean |p|)² / mean p² of progress that counts as spread evenly
EVEN_SHARE, EVEN_BETA = 0.12, 0.9
SAMPLE = 1 << 15  # coordinates looked at
_DECAY = 0.8  # weight of earlier rounds, per round
_STEP_GAIN = 0.2  # of ln γ, per round
_RISE, _FALL = 0.1, 0.3  # of ln share, per round: bytes are saved sooner than spent
_PEAK = 0.9  # share of the largest own progress that a round keeps, as the measure of reach
_FAINT = 0.005  # below this cosine the others' step and own progress are unrelated


class Steering:
    """One author's γ, density and β. Each round: `measure`, then `published` when its entry is out."""

    def __init__(self, size: int) -> None:
        self.gamma = 1.0
        self.share = BEGIN
        self.left, self._reach = 1.0, REACH
        self._before = self._after = 0.0
        self._stride = 0.0  # own progress of a round: its largest norm, which fades slowly
        rng = np.random.Generator(np.random.PCG64(size))
        self.places = np.arange(size) if size <= SAMPLE else np.unique(rng.integers(0, size, SAMPLE))
        self._begun = self._progress = self._own = np.zeros(0, np.float32)
        self._evenness = 0.0

    @property
    def even(self) -> bool:
        """Whether progress is spread evenly over the coordinates."""
        return self._evenness > EVEN

    def step(self, group: int) -> float:
        """γ of this author's next entry in a circle of `group`; a node alone adds what it learned, and no more."""
        return min(MOST, (group + 1) / 2) if self.even else self.gamma

    def density(self, group: int) -> float:
        """The share of the coordinates an entry carries: all others' together are `share`."""
        return (EVEN_SHARE if self.even else self.share) / max(1, group - 1)

    @property
    def beta(self) -> float:
        """What is left of the residual after a round."""
        if self.even:
            return EVEN_BETA
        return LONG - (LONG - SHORT) * min(1.0, max(0.0, 2.0 * self.left - 0.5))

    def measure(self, here: Floats, made: Floats, group: int) -> None:
        """A round in a circle of `group` went by `made` from the shared weights `here`, both at `places`.

        What did the steps of others since the last round do?
        """
        self._note_evenness(made)
        if len(self._own) and self._judge(here - self._begun, made):
            self._follow(min(BEGIN, FEW * max(1, group - 1)))
        self._begun, self._progress, self._own = here, made, self._own[:0]

    def _note_evenness(self, made: Floats) -> None:
        square = dot(made, made) / max(1, len(made))
        if 0.0 < square < math.inf:
            found = float(np.abs(made).mean()) ** 2 / square
            self._evenness = _smooth(self._evenness, found) if self._evenness else found

    def published(self, delta: SparseDelta) -> None:
        """Our entry of this round moves the weights by `delta`."""
        self._own = values_at(self.places, delta)

    def jumped(self) -> None:
        """The weights were replaced, not moved by entries: this round's change says nothing."""
        self._own = self._own[:0]

    def _judge(self, moved: Floats, made: Floats) -> bool:
        others = moved - self._own
        size = norm(others) * norm(self._progress)
        if not 0.0 < size < math.inf or not 0.0 < norm(made) < math.inf:
            return False  # nothing came in, or nothing was learned
        self._after = _smooth(self._after, dot(others, made) / size)
        self._before = _smooth(self._before, dot(others, self._progress) / size)
        self._stride = max(norm(made), _PEAK * self._stride + (1 - _PEAK) * norm(made))
        self._reach = _smooth(self._reach, norm(moved) / self._stride)
        if self._before > _FAINT:
            self.left = min(1.0, max(-1.0, self._after / self._before))
        return True

    def _follow(self, least: float) -> None:
        gain = self.left - LEFT
        room = math.log(REACH / max(self._reach, 1e-3))
        self.gamma = min(MOST, max(1.0, self.gamma * math.exp(_STEP_GAIN * max(-1.0, min(gain, room)))))
        self.share = min(MANY, max(least, self.share * math.exp((_RISE if gain > 0 else _FALL) * gain)))

    def state(self) -> Arrays:
        numbers = np.array(
            [self.gamma, self.share, self.left, self._reach, self._before, self._after, self._stride, self._evenness]
        )
        own = self._own if len(self._own) else np.full_like(self._begun, np.nan)
        return {"steering": numbers, "steered": np.stack([self._begun, self._progress, own])}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on from `state`; ValueError when it is damaged."""
        numbers, sampled = state["steering"], state["steered"]
        if numbers.shape != (8,) or sampled.shape not in ((3, 0), (3, len(self.places))):
            raise ValueError("the saved steering is of another model")
        if not (np.isfinite(numbers).all() and 1.0 <= numbers[0] <= MOST and 0.0 < numbers[1] <= MANY):
            raise ValueError("the saved steering is out of range")
        self.gamma, self.share, self.left, self._reach, self._before, self._after = map(float, numbers[:6])
        self._stride, self._evenness = map(float, numbers[6:])
        self._begun, self._progress, own = sampled.astype(np.float32)
        self._own = own if np.isfinite(own).all() else own[:0]


def _smooth(old: float, new: float) -> float:
    return _DECAY * old + (1 - _DECAY) * new


def values_at(places: npt.NDArray[np.int64], delta: SparseDelta) -> Floats:
    """A delta's values at some places, zero where it has none."""
    if delta.dense:
        return from_units(delta.values[places])
    found = np.zeros(len(places), np.float32)
    if len(delta.indices):
        at = np.minimum(np.searchsorted(delta.indices, places), len(delta.indices) - 1)
        there = delta.indices[at] == places
        found[there] = from_units(delta.values[at[there]])
    return found
