"""Single coordinates or whole blocks of them: what to send when indices cost more than values.

Neighbours in a block share one index, so at the same bytes several times as many coordinates travel. Every choice
here starts from a budget of k single coordinates and from `score`, which judges coordinates it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..delta import Indices
from ..weights import Floats, Units
from .magnitude import largest

HOLD = 2  # rounds an arm is kept: one round's loss is mostly noise
FADE = 0.99  # of what was learned about the arms, per reward
CURIOSITY = 0.1
_TREND = 0.8  # memory of the rolling rate


FINE, HYBRID, COARSE, RULE, LEARNED = range(5)


@dataclass(frozen=True)
class Arm:
    granularity: int
    share: float  # of the k asked for


ARMS = tuple(Arm(granularity, share) for share in (1.0, 0.5, 2.0) for granularity in (FINE, HYBRID, COARSE))


class Bandit:
    """Which arm to use now, by what came of those used before."""

    def __init__(self) -> None:
        self.arm = ARMS[0]
        self._pulls = np.zeros(len(ARMS))
        self._rewards = np.zeros(len(ARMS))
        self._losses: list[float] = []
        self._bytes = 0
        self._before: tuple[Arm, float, int] | None = None  # the stretch before: arm, mean loss, bytes
        self._trend = 0.0

    def note(self, loss: float, sent_bytes: int) -> None:
        """A round trained at this loss and then sent so much. After HOLD of them the arm before this one is judged.

        What is sent shows in the losses of the rounds after it.
        """
        self._losses.append(loss)
        self._bytes += sent_bytes
        if len(self._losses) < HOLD:
            return
        mean = float(np.mean(self._losses))
        if self._before is not None and self._before[2]:
            arm, loss_before, cost = self._before
            self._reward(arm, max(0.0, loss_before - mean) / cost)
        self._before, self._losses, self._bytes = (self.arm, mean, self._bytes), [], 0
        self.arm = ARMS[self._most_promising()]

    def _reward(self, arm: Arm, rate: float) -> None:
        """`rate`, loss per byte, becomes 0..1: a half is the usual of late."""
        value = rate / (rate + self._trend) if rate else 0.0
        self._trend = _TREND * self._trend + (1 - _TREND) * rate
        self._pulls *= FADE
        self._rewards *= FADE
        number = ARMS.index(arm)
        self._pulls[number] += 1
        self._rewards[number] += value

    def _most_promising(self) -> int:
        tried = np.maximum(self._pulls, 1e-9)
        unsure = CURIOSITY * np.sqrt(np.log(max(np.e, self._pulls.sum())) / tried)
        return int(np.argmax(self._rewards / tried + unsure))


NAMES = ("fine", "hybrid", "coarse", "rule", "learned")
CANDIDATES = 4  # times as many coordinates are scored as can be sent
COARSE_BLOCK = 64
HYBRID_BLOCKS = (64, 32, 16, 8)
RUN_BITS = 0.75  # the index of a coordinate that follows its neighbour, in the codec

Score = Callable[[Indices], Floats]
Numbers = npt.NDArray[np.int64]


class Blocks:
    """The coordinates in blocks of at most `length`, none across a layer's border."""

    def __init__(self, layers: Sequence[int], length: int) -> None:
        ends = np.cumsum(layers)
        self.starts: Numbers = np.concatenate(
            [np.arange(end - size, end, length) for size, end in zip(layers, ends, strict=True)]
        )
        self.lengths: Numbers = np.diff(np.append(self.starts, ends[-1]))

    def of(self, places: Indices) -> Numbers:
        """The block each coordinate is in."""
        return np.searchsorted(self.starts, places, side="right") - 1

    def places(self, blocks: Numbers) -> Indices:
        """All coordinates of some blocks, in the blocks' order."""
        lengths = self.lengths[blocks]
        before = np.cumsum(lengths) - lengths
        places: Numbers = np.arange(lengths.sum()) + np.repeat(self.starts[blocks] - before, lengths)
        return places.astype(np.uint32)


def best(places: Indices, scores: Floats, k: int) -> Indices:
    """The k of highest score, increasing; among equals the earlier goes first. None whose score is 0."""
    order = np.argsort(-scores, kind="stable")[:k]
    return np.sort(places[order[scores[order] > 0]])


def fine(residual: Units, k: int, score: Score) -> Indices:
    """Single coordinates: the k of highest score among the largest."""
    candidates = largest(residual, CANDIDATES * k)
    return best(candidates, score(candidates), k)


def coarse(residual: Units, k: int, score: Score, blocks: Blocks) -> Indices:
    """Whole blocks by their average score, within k coordinates; what is left goes to the best of the next block."""
    sums = np.add.reduceat(np.abs(residual), blocks.starts, dtype=np.float64)
    likely = np.argsort(-sums / blocks.lengths, kind="stable")[: CANDIDATES * k // int(blocks.lengths.max()) + 1]
    likely.sort()
    places, lengths = blocks.places(likely), blocks.lengths[likely]
    scores, starts = score(places), np.cumsum(lengths) - lengths
    ranked = np.argsort(-np.add.reduceat(scores, starts, dtype=np.float64) / lengths, kind="stable")
    filled = int(np.searchsorted(np.cumsum(lengths[ranked]), k, side="right"))
    whole = np.repeat(np.isin(np.arange(len(likely)), ranked[:filled]), lengths)
    chosen: Indices = places[whole & (scores > 0)]
    if filled == len(ranked):
        return chosen
    part = slice(starts[ranked[filled]], starts[ranked[filled]] + lengths[ranked[filled]])
    return np.sort(np.append(chosen, best(places[part], scores[part], k - int(whole.sum()))))


def hybrid(residual: Units, k: int, score: Score, sizes: Sequence[Blocks], bits: int, single_bits: float) -> Indices:
    """Blocks where they bring more score per bit than the last single coordinate that would go; singles elsewhere.

    Larger blocks are tried first. The bits are those of k single coordinates at `single_bits` each, index and value.
    """
    candidates = largest(residual, CANDIDATES * k)
    scores = score(candidates)
    dropped = candidates[scores <= 0]
    if len(candidates) <= k:
        return candidates[scores > 0]
    last = float(np.partition(scores, len(scores) - k)[len(scores) - k]) / single_bits
    left, taken = k * single_bits, [np.empty(0, np.uint32)]
    for blocks in sizes:
        numbers, where = np.unique(blocks.of(candidates), return_inverse=True)
        cost = single_bits + (blocks.lengths[numbers] - 1) * (bits + RUN_BITS)
        worth = np.bincount(where, scores, len(numbers)) / cost
        order = np.argsort(-worth, kind="stable")
        dense = order[(worth[order] > last) & (np.cumsum(cost[order]) <= left)]
        taken.append(blocks.places(numbers[dense]))
        left -= float(cost[dense].sum())
        outside = ~np.isin(where, dense)
        candidates, scores = candidates[outside], scores[outside]
    chosen: Indices = np.sort(np.concatenate([*taken, best(candidates, scores, int(left / single_bits))]))
    sent: Indices = chosen[(residual[chosen] != 0) & ~np.isin(chosen, dropped)]
    return sent


@dataclass(frozen=True)
class GranularityChoice:
    """A granularity, and why; `level` is the one that confidence alone asks for."""

    granularity: int
    level: int
    why: str


_FROM = {HYBRID: 0.25, FINE: 0.5}  # the confidence from which each is right; coarse before
_MARGIN = 0.05
_SHORT = 0.5


def granularity_for(confidence: float, scarcity: float, level: int) -> GranularityChoice:
    """The rule: coarse at the beginning, finer as the model gets confident, one level back when resources are short.

    `confidence` is the share of the loss that is gone by now; `scarcity` is 0 when the link has room and 1 when it is
    full; `level` is that of the choice before, which stays unless a border is clearly passed.
    """
    reached = [
        finer for finer, start in _FROM.items() if confidence >= start + (_MARGIN if finer < level else -_MARGIN)
    ]
    wanted = min(reached, default=COARSE)
    why = f"{max(0.0, confidence):.0%} of the loss is gone"
    if scarcity > _SHORT and wanted != COARSE:
        return GranularityChoice(wanted + 1, wanted, f"{why}, but the link is short")
    return GranularityChoice(wanted, wanted, why)


PRICE_EVERY = 8  # rounds after which one goes out fine, to know what single coordinates cost by now
MOST = 6.0  # times the coordinates of fine
_MEMORY = 0.8  # of rolling averages, per round


class Granulator:
    """A fixed granularity, the rule, or the bandit; all at the bytes of fine, the bandit at its arm's share of them."""

    def __init__(self, setting: int, layers: Sequence[int]) -> None:
        self.scarcity = 0.0  # 0: the link has room; 1: it is full. For the rule.
        self.granularity = FINE  # of the last round
        self.choice = GranularityChoice(COARSE, COARSE, "the beginning")
        self.bandit = Bandit() if setting == LEARNED else None
        self._setting = setting
        self._layers = tuple(layers)
        self._fine_bits = 0.0  # a single coordinate took when last one went out; 0 before the first
        self._more = {COARSE: 2.0, HYBRID: 1.0}  # times k, so that the bytes are those of k single ones
        self._k = 0
        self._rounds = 0
        self._first_loss = self._loss = self._smooth = 0.0

    def places(self, residual: Units, k: int, most: int, bits: int, loss: float, score: Score) -> Indices:
        """Heavy. The coordinates of this round's delta, at most `most`."""
        self._follow(loss)
        self.granularity = self._next()
        self._rounds += 1
        self._k = min(most, k if self.bandit is None else max(1, round(k * self.bandit.arm.share)))
        if self.granularity == FINE:
            return fine(residual, self._k, score)
        budget = min(most, max(1, round(self._k * self._more[self.granularity])))
        if self.granularity == COARSE:
            return coarse(residual, budget, score, self._coarse)
        chosen = hybrid(residual, budget, score, self._hybrid, bits, self._fine_bits)
        return chosen if len(chosen) <= most else best(chosen, score(chosen), most)

    def sent(self, entries: int, payload_bytes: int) -> None:
        """How the delta of these places turned out."""
        bits = 8.0 * payload_bytes
        if entries and self.granularity == FINE:
            self._fine_bits = bits / entries
        elif entries:
            more = self._more[self.granularity] * (self._k * self._fine_bits / bits) ** 0.5
            self._more[self.granularity] = min(MOST, max(1 / MOST, more))
        if self.bandit is not None:
            self.bandit.note(self._loss, payload_bytes)

    @cached_property
    def _coarse(self) -> Blocks:
        return Blocks(self._layers, COARSE_BLOCK)

    @cached_property
    def _hybrid(self) -> list[Blocks]:
        return [Blocks(self._layers, length) for length in HYBRID_BLOCKS]

    def _next(self) -> int:
        if not self._fine_bits or (self._setting != FINE and self._rounds % PRICE_EVERY == 0):
            return FINE
        if self.bandit is not None:
            return self.bandit.arm.granularity
        return self.choice.granularity if self._setting == RULE else self._setting

    def _follow(self, loss: float) -> None:
        """Confidence is the share of the first loss that is gone."""
        self._loss = loss
        self._first_loss = self._first_loss or loss
        self._smooth = _MEMORY * self._smooth + (1 - _MEMORY) * loss if self._smooth else loss
        confidence = 1.0 - self._smooth / self._first_loss if self._first_loss else 0.0
        self.choice = granularity_for(confidence, self.scarcity, self.choice.level)
