"""Single coordinates or whole blocks of them: blocks are better when indices cost more than values.

Neighbours in a block share one index, so several times as many coordinates fit into the same bytes. There are three
granularities (`fine`, `hybrid`, `coarse`) and two ways to change between them while training: a rule and a bandit.
`GranularityControl` does all of it; it starts from a budget of k single coordinates and a score for coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..delta import Indices
from ..selector import Budget
from ..weights import Floats, Units
from .magnitude import largest

FINE, HYBRID, COARSE, RULE, LEARNED = range(5)
NAMES = ("fine", "hybrid", "coarse", "rule", "learned")


def checked_granularity(value: float) -> int:
    """The setting `granularity` as a number from 0 to 4; ValueError for any other number."""
    if value not in range(len(NAMES)):
        words = ", ".join(f"{number} {name}" for number, name in enumerate(NAMES))
        raise ValueError(f"granularity {value}; one of {words} is possible")
    return int(value)


# ---- choosing coordinates, for each granularity ----

CANDIDATES = 4  # times as many coordinates are scored as can be sent
COARSE_BLOCK = 64
HYBRID_BLOCKS = (64, 32, 16, 8)
RUN_BITS = 0.75  # the index of a coordinate that follows its neighbour, in the codec

Score = Callable[[Indices], Floats]
BlockNumbers = npt.NDArray[np.int64]


class Blocks:
    """The coordinates in blocks of at most `length`. No block crosses the border between two layers."""

    def __init__(self, layers: Sequence[int], length: int) -> None:
        ends = np.cumsum(layers)
        self.starts: BlockNumbers = np.concatenate(
            [np.arange(end - size, end, length) for size, end in zip(layers, ends, strict=True)]
        )
        self.lengths: BlockNumbers = np.diff(np.append(self.starts, ends[-1]))

    def containing(self, indices: Indices) -> BlockNumbers:
        """The block that each coordinate is in."""
        return np.searchsorted(self.starts, indices, side="right") - 1

    def indices(self, blocks: BlockNumbers) -> Indices:
        """All coordinates of some blocks, in the blocks' order."""
        lengths = self.lengths[blocks]
        before = np.cumsum(lengths) - lengths
        found: npt.NDArray[np.int64] = np.arange(lengths.sum()) + np.repeat(self.starts[blocks] - before, lengths)
        return found.astype(np.uint32)


def best(indices: Indices, scores: Floats, k: int) -> Indices:
    """The k coordinates of highest score, increasing. Equal scores go by index; a score of 0 is never chosen."""
    order = np.argsort(-scores, kind="stable")[:k]
    return np.sort(indices[order[scores[order] > 0]])


def fine(residual: Units, k: int, score: Score) -> Indices:
    """The k single coordinates of highest score, out of the largest ones."""
    candidates = largest(residual, CANDIDATES * k)
    return best(candidates, score(candidates), k)


def coarse(residual: Units, k: int, score: Score, blocks: Blocks) -> Indices:
    """Whole blocks of highest average score, up to k coordinates; the best of the next block fill the remainder."""
    sums = np.add.reduceat(np.abs(residual), blocks.starts, dtype=np.float64)
    likely = np.argsort(-sums / blocks.lengths, kind="stable")[: CANDIDATES * k // int(blocks.lengths.max()) + 1]
    likely.sort()
    indices, lengths = blocks.indices(likely), blocks.lengths[likely]
    scores, starts = score(indices), np.cumsum(lengths) - lengths
    ranked = np.argsort(-np.add.reduceat(scores, starts, dtype=np.float64) / lengths, kind="stable")
    filled = int(np.searchsorted(np.cumsum(lengths[ranked]), k, side="right"))
    whole = np.repeat(np.isin(np.arange(len(likely)), ranked[:filled]), lengths)
    chosen: Indices = indices[whole & (scores > 0)]
    if filled == len(ranked):
        return chosen
    part = slice(starts[ranked[filled]], starts[ranked[filled]] + lengths[ranked[filled]])
    return np.sort(np.append(chosen, best(indices[part], scores[part], k - int(whole.sum()))))


def hybrid(residual: Units, k: int, score: Score, sizes: Sequence[Blocks], bits: int, single_bits: float) -> Indices:
    """Blocks where they bring more score per bit than the last single coordinate that would go; singles elsewhere.

    Larger blocks are tried first. The bits to spend are those of k single coordinates, each of `single_bits` with its
    index and value.
    """
    candidates = largest(residual, CANDIDATES * k)
    scores = score(candidates)
    dropped = candidates[scores <= 0]
    if len(candidates) <= k:
        return candidates[scores > 0]
    last = float(np.partition(scores, len(scores) - k)[len(scores) - k]) / single_bits
    left, taken = k * single_bits, [np.empty(0, np.uint32)]
    for blocks in sizes:
        numbers, where = np.unique(blocks.containing(candidates), return_inverse=True)
        cost = single_bits + (blocks.lengths[numbers] - 1) * (bits + RUN_BITS)
        worth = np.bincount(where, scores, len(numbers)) / cost
        order = np.argsort(-worth, kind="stable")
        dense = order[(worth[order] > last) & (np.cumsum(cost[order]) <= left)]
        taken.append(blocks.indices(numbers[dense]))
        left -= float(cost[dense].sum())
        outside = ~np.isin(where, dense)
        candidates, scores = candidates[outside], scores[outside]
    chosen: Indices = np.sort(np.concatenate([*taken, best(candidates, scores, int(left / single_bits))]))
    sent: Indices = chosen[(residual[chosen] != 0) & ~np.isin(chosen, dropped)]
    return sent


# ---- the rule ----

_FROM = {HYBRID: 0.25, FINE: 0.5}  # the confidence from which each is right; coarse before
_MARGIN = 0.05
_SHORT = 0.5


@dataclass(frozen=True)
class GranularityChoice:
    """A granularity with the reason for it. `level` is the one that confidence alone asks for."""

    granularity: int
    level: int
    reason: str


def granularity_for(confidence: float, scarcity: float, level: int) -> GranularityChoice:
    """Coarse at the beginning, finer as the model becomes confident, one level back when the link is short.

    `confidence` is the share of the first loss that is gone by now; `scarcity` is 0 when the link has room and 1 when
    it is full; `level` is that of the previous choice, which stays unless a border is clearly passed.
    """
    reached = [
        finer for finer, start in _FROM.items() if confidence >= start + (_MARGIN if finer < level else -_MARGIN)
    ]
    wanted = min(reached, default=COARSE)
    reason = f"{max(0.0, confidence):.0%} of the loss is gone"
    if scarcity > _SHORT and wanted != COARSE:
        return GranularityChoice(wanted + 1, wanted, f"{reason}, but the link is short")
    return GranularityChoice(wanted, wanted, reason)


# ---- the bandit ----

HOLD = 2  # rounds an arm is kept: one round's loss is mostly noise
FADE = 0.99  # of what was learned about the arms, per reward
CURIOSITY = 0.1
_TREND = 0.8  # memory of the rolling rate


@dataclass(frozen=True)
class Arm:
    """One thing to try: a granularity, and how much of the budget to spend."""

    granularity: int
    share: float  # of the k asked for


ARMS = tuple(Arm(granularity, share) for share in (1.0, 0.5, 2.0) for granularity in (FINE, HYBRID, COARSE))


class Bandit:
    """Learns which arm takes away the most loss per byte (UCB, with older rewards fading)."""

    def __init__(self) -> None:
        self.arm = ARMS[0]
        self._pulls = np.zeros(len(ARMS))
        self._rewards = np.zeros(len(ARMS))
        self._losses: list[float] = []
        self._bytes = 0
        self._before: tuple[Arm, float, int] | None = None  # the previous stretch: arm, mean loss, bytes
        self._trend = 0.0

    def note(self, loss: float, sent_bytes: int) -> None:
        """Takes the loss at which a round trained and the bytes it then sent.

        What is sent shows in the losses of the rounds after it, so every HOLD rounds the previous arm gets its reward.
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
        """Turns `rate`, loss per byte, into a reward from 0 to 1, where a half is the recent average."""
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


# ---- all of it ----

PRICE_EVERY = 8  # rounds after which one goes out fine, to learn what single coordinates cost by now
MOST = 6.0  # times the coordinates of fine
_MEMORY = 0.8  # of rolling averages, per round


class GranularityControl:
    """Chooses coordinates in a fixed granularity, by the rule, or by the bandit.

    All of them cost about the bytes of k single coordinates; the bandit costs its arm's share of these.
    """

    def __init__(self, setting: int, layers: Sequence[int]) -> None:
        self.current = FINE  # the granularity of the latest round
        self.choice = GranularityChoice(COARSE, COARSE, "the beginning")
        self.bandit = Bandit() if setting == LEARNED else None
        self._setting = setting
        self._layers = tuple(layers)
        self._fine_bits = 0.0  # a single coordinate took when last one went out; 0 before the first
        self._more = {COARSE: 2.0, HYBRID: 1.0}  # times k, so that the bytes are those of k single ones
        self._k = 0
        self._rounds = 0
        self._first_loss = self._loss = self._smooth_loss = 0.0

    def select(self, residual: Units, budget: Budget, loss: float, score: Score) -> Indices:
        """Heavy. The coordinates of this round's delta, at most `budget.maximum`."""
        self._follow(loss, budget.scarcity)
        self.current = self._next()
        self._rounds += 1
        share = 1.0 if self.bandit is None else self.bandit.arm.share
        self._k = min(budget.maximum, max(1, round(budget.count * share)))
        if self.current == FINE:
            return fine(residual, self._k, score)
        k = min(budget.maximum, max(1, round(self._k * self._more[self.current])))
        if self.current == COARSE:
            return coarse(residual, k, score, self._coarse)
        chosen = hybrid(residual, k, score, self._hybrid, budget.bits, self._fine_bits)
        return chosen if len(chosen) <= budget.maximum else best(chosen, score(chosen), budget.maximum)

    def sent(self, entries: int, payload_bytes: int) -> None:
        """Takes what the latest choice cost, and corrects the number of coordinates for the next one."""
        bits = 8.0 * payload_bytes
        if entries and self.current == FINE:
            self._fine_bits = bits / entries
        elif entries:
            more = self._more[self.current] * (self._k * self._fine_bits / bits) ** 0.5
            self._more[self.current] = min(MOST, max(1 / MOST, more))
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

    def _follow(self, loss: float, scarcity: float) -> None:
        """Confidence is the share of the first loss that is gone."""
        self._loss = loss
        self._first_loss = self._first_loss or loss
        self._smooth_loss = _MEMORY * self._smooth_loss + (1 - _MEMORY) * loss if self._smooth_loss else loss
        confidence = 1.0 - self._smooth_loss / self._first_loss if self._first_loss else 0.0
        self.choice = granularity_for(confidence, scarcity, self.choice.level)
