"""How large an entry may be, measured by the latest entries of the others that it cites. Pure.

Sizes are compared as levels, six an octave (12 % apart), so that they are small integers and decide alike on every
machine. With the cited entry of each other author:

    whole entry    at most 1.5 times the median norm (three levels above it)
    one tensor     at most 1.5 times the median norm of that tensor, or of a tenth of the median norm of whole entries
    one value      at most three times the median of the largest values (ten levels)

An author cuts its delta before it signs (`cut_to`), and what is cut stays in its residual, so that honest entries
always fit. With fewer than FEWEST others only the manifest's bound holds.
A size that is not known counts as unlimited: entries of excluded authors are gone where the exclusion came first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import isqrt

import numpy as np
import numpy.typing as npt

from ...compression.delta import SparseDelta
from ...compression.weights import MAX_UNITS, Units, norm_squared

FEWEST = 3  # other authors whose sizes make a median
STEPS = 6  # levels in an octave
WHOLE, TENSOR, VALUE = 3, 3, 10  # levels above the median: 1.5, 1.5 and 3 times
SMALL_TENSOR = 20  # levels below the whole entry's median that any tensor may have: a tenth
UNLIMITED = 255

Wide = npt.NDArray[np.int64]  # values in units, with room for products
Sizes = tuple[int, ...]  # levels of the norm, of the largest value, and of the norm of each tensor


def _threshold(level: int) -> int:
    """The smallest size of a level: the least u with u^STEPS >= 2^(level − 1)."""
    wanted, guess = 1 << (level - 1), round(2 ** ((level - 1) / STEPS))
    while guess**STEPS >= wanted:
        guess -= 1
    while guess**STEPS < wanted:
        guess += 1
    return guess


_THRESHOLDS = tuple(_threshold(level) for level in range(1, UNLIMITED + 1))


def level(size: int) -> int:
    """The level of a size in units; 0 for nothing."""
    return bisect_right(_THRESHOLDS, size)


def largest_of(found: int) -> int:
    """The largest size of a level, in units."""
    return _THRESHOLDS[found] - 1 if found < UNLIMITED else MAX_UNITS * MAX_UNITS


@dataclass(frozen=True)
class Limits:
    """The highest levels that an entry may have."""

    norm: int = UNLIMITED
    value: int = UNLIMITED
    tensors: tuple[int, ...] = ()  # empty: no limit

    def broken_by(self, sizes: Sizes) -> str:
        """The limit that these sizes are beyond, or ""."""
        if sizes[0] > self.norm:
            return "it is larger than 1.5 times the median of the others' entries"
        if sizes[1] > self.value:
            return "a value is more than three times the median of the others' largest"
        if any(size > most for size, most in zip(sizes[2:], self.tensors, strict=False)):
            return "a tensor changes more than 1.5 times the median of the others"
        return ""


NO_LIMITS = Limits()


def sizes_of(delta: SparseDelta, layers: tuple[int, ...]) -> Sizes:
    """The sizes of a delta of a model with these layers."""
    largest = int(np.abs(delta.values).max()) if len(delta) else 0
    tensors = tuple(level(isqrt(norm_squared(part))) for part in _parts(delta, layers))
    return (level(isqrt(norm_squared(delta.values))), level(largest), *tensors)


def limits_from(cited: Sequence[Sizes | None], tensors: int) -> Limits:
    """The limits that the sizes of the others' cited entries set."""
    if len(cited) < FEWEST:
        return NO_LIMITS
    norm = _median(cited, 0)
    if not norm:
        return NO_LIMITS  # most of the others publish nothing
    each = (max(_median(cited, 2 + number), norm - SMALL_TENSOR) for number in range(tensors))
    return Limits(
        _capped(norm + WHOLE), _capped(_median(cited, 1) + VALUE), tuple(_capped(found + TENSOR) for found in each)
    )


def _capped(found: int) -> int:
    """A limit, unless the median was not known."""
    return min(UNLIMITED, found)


def _median(cited: Sequence[Sizes | None], place: int) -> int:
    found = sorted(UNLIMITED if sizes is None else sizes[place] for sizes in cited)
    return found[len(found) // 2]


def cut_to(delta: SparseDelta, limits: Limits, layers: tuple[int, ...], whole: bool = False) -> SparseDelta:
    """The delta within limits: large values are cut, tensors and then everything scaled down, rounded towards zero.

    With `whole` everything is scaled by one factor, as sign entries need it. Law: it fits, and what fits is not
    changed.
    """
    if not limits.broken_by(sizes_of(delta, layers)):
        return delta
    values: Wide = delta.values.astype(np.int64)
    if whole:
        values = _scaled_to_fit(delta, values, limits, layers)
    else:
        most = largest_of(limits.value)
        values = np.clip(values, -most, most)
        borders = _borders(delta, layers)
        for number, most_level in enumerate(limits.tensors):
            part = slice(borders[number], borders[number + 1])
            values[part] = _shrunk(values[part], largest_of(most_level))
        values = _shrunk(values, largest_of(limits.norm))
    return SparseDelta(delta.size, delta.indices, values.astype(np.int32))


def _scaled_to_fit(delta: SparseDelta, values: Wide, limits: Limits, layers: tuple[int, ...]) -> Wide:
    """All values times the largest multiple of 2⁻¹² that makes them fit."""
    low, high = 0, 1 << 12
    while high - low > 1:
        middle = (low + high) // 2
        tried = SparseDelta(delta.size, delta.indices, _times(values, middle, 1 << 12).astype(np.int32))
        low, high = (low, middle) if limits.broken_by(sizes_of(tried, layers)) else (middle, high)
    return _times(values, low, 1 << 12)


def _shrunk(values: Wide, most: int) -> Wide:
    """Values scaled down to a norm of at most `most`."""
    norm = isqrt(norm_squared(values.astype(np.int32)))
    return values if norm <= most else _times(values, most, norm + 1)


def _times(values: Wide, over: int, under: int) -> Wide:
    """values · over / under in integers, towards zero; over <= under."""
    scale = over * (1 << 24) // under  # values stay below 2³¹, so that products fit 64 bits
    found: Wide = np.sign(values) * ((np.abs(values) * scale) >> 24)
    return found


def _parts(delta: SparseDelta, layers: tuple[int, ...]) -> list[Units]:
    borders = _borders(delta, layers)
    return [delta.values[start:end] for start, end in pairwise(borders)]


def _borders(delta: SparseDelta, layers: tuple[int, ...]) -> list[int]:
    """Where the values of each layer begin in a delta, and where the last ends."""
    return [0, *np.searchsorted(delta.indices, _ends(layers)).tolist()]


@lru_cache(maxsize=8)
def _ends(layers: tuple[int, ...]) -> Wide:
    ends: Wide = np.cumsum(layers, dtype=np.int64)
    return ends
