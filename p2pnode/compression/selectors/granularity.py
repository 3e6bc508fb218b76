"""Single coordinates or whole blocks of them: what to send when indices cost more than values.

Neighbours in a block share one index, so at the same bytes several times as many coordinates travel. Every choice
here starts from a budget of k single coordinates and from `score`, which judges coordinates it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..delta import Indices
from ..weights import Floats, Units
from .magnitude import largest

FINE, HYBRID, COARSE, RULE, LEARNED = range(5)
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
