"""Random masks that cost a seed: both sides draw the same coordinates."""

from __future__ import annotations

from math import isqrt

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from .delta import Indices

_DOMAIN = b"p2pnode mask 1\0"

Draws = npt.NDArray[np.uint64]


def draw_places(size: int, count: int, seed: int) -> Indices:
    """`count` different ones of `size` coordinates, increasing; part of the format, so the same everywhere.

    Numbers of 64 bits from blake3's output stream over the seed, modulo `size`; the first `count` different ones
    count. Above half of the coordinates those left out are drawn.
    """
    if 2 * count > size:
        there = np.ones(size, bool)
        there[draw_places(size, size - count, seed)] = False
        return np.flatnonzero(there).astype(np.uint32)
    draws = count + count * count // size + 4 * isqrt(count) + 8
    while True:
        drawn = _first_different(_numbers(seed, draws) % np.uint64(size), count)
        if len(drawn) == count:
            return drawn
        draws *= 2


def _numbers(seed: int, count: int) -> Draws:
    stream = blake3(_DOMAIN + seed.to_bytes(8, "little")).digest(length=8 * count)
    return np.frombuffer(stream, "<u8").astype(np.uint64)


def _first_different(numbers: Draws, count: int) -> Indices:
    """The first `count` different numbers, increasing; fewer when there are not so many."""
    tagged = np.sort(numbers << np.uint64(32) | np.arange(len(numbers), dtype=np.uint64))
    ordered = tagged >> np.uint64(32)
    new = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    distinct: Indices = ordered[new].astype(np.uint32)
    if len(distinct) > count:
        when = tagged[new] & np.uint64(0xFFFFFFFF)
        distinct = distinct[when < np.partition(when, count)[count]]
    return distinct
