"""Which coordinates to send: those of largest magnitude (docs/design.md: other measures of importance did worse).

A threshold from a sample leaves a few more candidates than asked for, found in one pass over memory; among them the
choice is exact. So the result is that of a sort, at less than the price of three copies of the vector.
"""

from __future__ import annotations

from math import isqrt

import numpy as np
import numpy.typing as npt

from ..bits import Numbers, true_places
from ..delta import Indices
from ..weights import Floats, Units

_SAMPLE = 1 << 17  # coordinates looked at to find the threshold
_BLOCK = 1 << 17  # coordinates compared at a time: they stay in the cache


def largest(numbers: Units | Floats, k: int) -> Indices:
    """The places of the k largest magnitudes, increasing; among equals the lower index goes first.

    Exactly k of them, or as many as differ from zero: a coordinate that did not change is never sent. Units or float32
    scores; no score may be NaN.
    """
    if k <= 0 or not len(numbers):
        return np.empty(0, np.uint32)
    rank = _sampled_rank(len(numbers), k)
    sample = _magnitudes(numbers[:: _stride(len(numbers))])
    while True:
        threshold = _at_rank(sample, rank)
        places, magnitudes = _at_least(numbers, threshold)
        if len(places) >= k or threshold == 1:
            return _exactly(places, magnitudes, k)
        rank *= 2


def _stride(size: int) -> int:
    """Between coordinates of the sample; odd, so that it does not keep step with rows of a power of two."""
    return size // _SAMPLE | 1


def _sampled_rank(size: int, k: int) -> int:
    """How many of the sample should lie above the threshold, so that rarely fewer than k of all do."""
    expected = k // _stride(size)
    return expected + expected // 32 + 3 * isqrt(expected) + 3


def _at_rank(sample: Numbers, rank: int) -> int:
    """The magnitude above which the `rank` largest of the sample lie; 1 when there are not so many."""
    if rank >= len(sample):
        return 1
    return max(1, int(np.partition(sample, len(sample) - rank)[len(sample) - rank]))


def _magnitudes(numbers: npt.NDArray[np.int32] | Floats) -> Numbers:
    """As unsigned, so that the most negative value counts as large; floats of one sign are ordered like their bits."""
    return np.abs(numbers).view(np.uint32)


def _at_least(numbers: Units | Floats, threshold: int) -> tuple[Indices, Numbers]:
    """Where magnitudes reach the threshold, and these."""
    places, found = [], []
    room = min(_BLOCK, -(-len(numbers) // 8) * 8)
    block, reached = np.empty(room, numbers.dtype), np.zeros(room, bool)
    for start in range(0, len(numbers), _BLOCK):
        here = numbers[start : start + _BLOCK]
        magnitudes = np.abs(here, out=block[: len(here)]).view(np.uint32)
        np.greater_equal(magnitudes, np.uint32(threshold), out=reached[: len(here)])
        reached[len(here) :] = False
        at = true_places(reached)
        found.append(magnitudes[at])
        places.append(at + start)
    return np.concatenate(places).astype(np.uint32), np.concatenate(found)


def _exactly(places: Indices, magnitudes: Numbers, k: int) -> Indices:
    """The k largest of the candidates, or all when they are fewer."""
    surplus = len(places) - k
    if surplus <= 0:
        return places
    threshold = _kth(magnitudes, surplus)
    chosen = magnitudes >= threshold
    over = int(np.count_nonzero(chosen)) - k
    if over:
        ties = np.flatnonzero(magnitudes == threshold)
        chosen[ties[len(ties) - over :]] = False
    return places[chosen]


def _kth(magnitudes: Numbers, rank: int) -> np.uint32:
    """The magnitude of this rank from below. numpy's partition is 50 times slower on many ties: those at the bottom
    are looked at first."""
    lowest = magnitudes.min()
    above = magnitudes[magnitudes > lowest]
    ties = len(magnitudes) - len(above)
    return np.uint32(lowest) if rank < ties else np.uint32(np.partition(above, rank - ties)[rank - ties])
