"""A keyed, linear checksum of A: 8 bytes that are updated with every entry, and can be computed from the weights.

Each coordinate counts with two factors drawn from its index and the key, one for each half of the checksum. Sums are
taken modulo 2³², as the grid's are, so that A may wrap around and the checksum follows:

    checksum(A + d) = checksum(A) + checksum(d), half by half

So it costs an entry only its own coordinates, in any order. The first factor is odd: no single change goes unseen.
Several changes may hide each other when a large power of two divides them all (2³¹: one time in two), because what
wraps around as the grid does cannot tell them apart. It finds damage, not malice: snapshots are compared by hash.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from ...compression.delta import SparseDelta
from ...compression.weights import Units

_CHUNK = 1 << 14  # coordinates at a time: what stays in the cache is three times as fast, and memory is bounded
_HALF = 32
_LOW = (1 << _HALF) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_SHIFTS = tuple(map(np.uint64, (30, 27, 31)))

Checksum = int  # two halves of 32 bits


def key_of(lineage: bytes) -> int:
    """The key of a lineage's checksums."""
    return int.from_bytes(blake3(b"p2pnode checksum 1\0" + lineage).digest(8), "little")


def of_weights(units: Units, key: int, first: int = 0) -> Checksum:
    """The checksum of A, or of a part of it that begins at coordinate `first`."""
    total = 0
    for start in range(0, len(units), _CHUNK):
        part = units[start : start + _CHUNK]
        places = np.arange(first + start, first + start + len(part), dtype=np.uint64)
        total = added(total, _of_part(places, part, key))
    return total


def of_delta(delta: SparseDelta, key: int) -> Checksum:
    """The checksum of what a delta adds."""
    if delta.dense:
        return of_weights(delta.values, key)
    return _of_part(delta.indices.astype(np.uint64), delta.values, key)


def added(one: Checksum, other: Checksum) -> Checksum:
    """The checksum of a sum; see `less` for a difference."""
    return ((one >> _HALF) + (other >> _HALF) & _LOW) << _HALF | (one + other) & _LOW


def less(one: Checksum, other: Checksum) -> Checksum:
    """The checksum of a difference."""
    return ((one >> _HALF) - (other >> _HALF) & _LOW) << _HALF | (one - other) & _LOW


def _of_part(places: npt.NDArray[np.uint64], values: Units, key: int) -> Checksum:
    factors = _factors(places, key)
    amounts = values.view(np.uint32)
    low = np.dot(amounts, factors.astype(np.uint32) | np.uint32(1))
    high = np.dot(amounts, (factors >> np.uint64(_HALF)).astype(np.uint32))
    return int(high) << _HALF | int(low)


def _factors(places: npt.NDArray[np.uint64], key: int) -> npt.NDArray[np.uint64]:
    """splitmix64 of key + index, in place where it can be."""
    mixed = places * _GOLDEN + np.uint64(key & (1 << 64) - 1)
    mixed ^= mixed >> _SHIFTS[0]
    mixed *= _MIX_1
    mixed ^= mixed >> _SHIFTS[1]
    mixed *= _MIX_2
    mixed ^= mixed >> _SHIFTS[2]
    return mixed
