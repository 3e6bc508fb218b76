"""Sends the coordinates of largest magnitude. This is the default (docs/log.md: other rules were not better).

The result is that of a sort, for less than the time of three copies of the vector: a sample gives a threshold, one pass
over memory finds the candidates above it, and the exact choice is made among these.
"""

from __future__ import annotations

from math import isqrt

import numpy as np

from ..bits import Numbers, true_indices
from ..delta import Indices
from ..selector import Budget, Selector, SelectorSetup
from ..weights import Floats, Units

_SAMPLE = 1 << 17  # coordinates looked at to find the threshold
_BLOCK = 1 << 17  # coordinates compared at a time: they stay in the cache


class Magnitude(Selector):
    """The largest magnitudes of the residual. It learns nothing and has no settings."""

    def __init__(self, setup: SelectorSetup) -> None:
        pass

    def select(self, residual: Units, progress: Floats, budget: Budget, loss: float) -> Indices:
        return largest(residual, min(budget.count, budget.maximum))


def largest(numbers: Units | Floats, k: int) -> Indices:
    """The indices of the k largest magnitudes, increasing; among equals the lower index goes first.

    There are exactly k of them, or as many as differ from zero: a coordinate that did not change is never sent.
    `numbers` are units, or float32 scores without NaN.
    """
    if k <= 0 or not len(numbers):
        return np.empty(0, np.uint32)
    rank = _sampled_rank(len(numbers), k)
    sample = _magnitudes(numbers[:: _stride(len(numbers))])
    while True:
        threshold = _at_rank(sample, rank)
        indices, magnitudes = _at_least(numbers, threshold)
        if len(indices) >= k or threshold == 1:
            return _exactly(indices, magnitudes, k)
        rank *= 2


def _stride(size: int) -> int:
    """The distance between coordinates of the sample: odd, so that it differs from rows of a power of two."""
    return size // _SAMPLE | 1


def _sampled_rank(size: int, k: int) -> int:
    """How much of the sample should lie above the threshold, so that fewer than k of all rarely do."""
    expected = k // _stride(size)
    return expected + expected // 32 + 3 * isqrt(expected) + 3


def _at_rank(sample: Numbers, rank: int) -> int:
    """The magnitude above which the `rank` largest of the sample lie; 1 when the sample is smaller."""
    if rank >= len(sample):
        return 1
    return max(1, int(np.partition(sample, len(sample) - rank)[len(sample) - rank]))


def _magnitudes(numbers: Units | Floats) -> Numbers:
    """Unsigned, so that the most negative integer counts as large. Positive floats are ordered like their bits."""
    return np.abs(numbers).view(np.uint32)


def _at_least(numbers: Units | Floats, threshold: int) -> tuple[Indices, Numbers]:
    """The indices of magnitudes that reach the threshold, and these magnitudes."""
    indices, found = [], []
    room = min(_BLOCK, -(-len(numbers) // 8) * 8)
    block, reached = np.empty(room, numbers.dtype), np.zeros(room, bool)
    for start in range(0, len(numbers), _BLOCK):
        here = numbers[start : start + _BLOCK]
        magnitudes = np.abs(here, out=block[: len(here)]).view(np.uint32)
        np.greater_equal(magnitudes, np.uint32(threshold), out=reached[: len(here)])
        reached[len(here) :] = False
        at = true_indices(reached)
        found.append(magnitudes[at])
        indices.append(at + start)
    return np.concatenate(indices).astype(np.uint32), np.concatenate(found)


def _exactly(indices: Indices, magnitudes: Numbers, k: int) -> Indices:
    """The k largest of the candidates, or all when they are fewer."""
    surplus = len(indices) - k
    if surplus <= 0:
        return indices
    threshold = _kth(magnitudes, surplus)
    chosen = magnitudes >= threshold
    over = int(np.count_nonzero(chosen)) - k
    if over:
        ties = np.flatnonzero(magnitudes == threshold)
        chosen[ties[len(ties) - over :]] = False
    return indices[chosen]


def _kth(magnitudes: Numbers, rank: int) -> np.uint32:
    """The magnitude of this rank, counted from the smallest.

    numpy's partition is 50 times slower with many ties, so ties of the smallest magnitude are handled first.
    """
    lowest = magnitudes.min()
    above = magnitudes[magnitudes > lowest]
    ties = len(magnitudes) - len(above)
    return np.uint32(lowest) if rank < ties else np.uint32(np.partition(above, rank - ties)[rank - ties])
