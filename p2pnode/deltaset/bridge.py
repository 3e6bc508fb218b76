"""Bridges: a step towards another circle's weights, as an ordinary entry (docs/design.md, between circles).

One node asks a partner of another circle for its weights on an index set S, and publishes half the difference into its
own circle. The residual is left alone.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..deltas.delta import Indices, SparseDelta
from ..deltas.make import weighted
from ..deltas.quantise import quantise
from ..deltas.select import largest
from ..weights import MAX_UNITS, Units
from .accumulate import apply
from .entry import BRIDGE
from .heads import Span
from .log import EntrySet

SHARE = 0.01  # of the coordinates: most changed, and again as many at random
LEAST, MOST = 128, 65_536  # of each: below, a message is mostly envelope; above, an answer would not fit into a call
BITS = 4
COARSE = 1 << 8  # units an answer is rounded to: 2⁻¹⁶, far finer than four bits of a difference, and half the bytes


def count_of(size: int, max_entries: int) -> int:
    """How many coordinates of each kind S has, the same on both sides."""
    return max(1, min(max(LEAST, round(SHARE * size)), MOST, max_entries // 2))


def most_changed(size: int, deltas: Iterable[SparseDelta], count: int) -> Indices:
    """Where deltas together changed most; increasing. Costs a vector while it runs, and nothing between bridges."""
    total = np.zeros(size, np.int32)
    for delta in deltas:
        apply(total, delta)
    return largest(total, count)


def drawn(size: int, seed: int, count: int) -> Indices:
    """Coordinates by chance: anybody draws the same from the seed; increasing."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return np.sort(rng.choice(size, count, replace=False, shuffle=False)).astype(np.uint32)


def index_set(changed: Indices, by_chance: Indices, most: int) -> Indices:
    """S: both together, at most `most`; increasing."""
    return np.union1d(changed, by_chance)[:most]


def sample(units: Units, places: Indices) -> SparseDelta:
    """Weights on S."""
    return SparseDelta(len(units), places, np.clip(units[places], -MAX_UNITS, MAX_UNITS))


def coarse(values: Units) -> Units:
    """What a partner tells of its weights on S."""
    rounded = np.rint(values / COARSE).astype(np.int64) * COARSE
    return np.clip(rounded, -MAX_UNITS, MAX_UNITS).astype(np.int32)


def bridge_delta(mine: SparseDelta, theirs: Units) -> SparseDelta:
    """Half the way from my weights on S to theirs, at four bits, with weight 1."""
    half = _difference(theirs, mine.values) // 2
    return weighted(mine.size, mine.indices, quantise(half, BITS), 1.0)


def union_delta(smaller: Units, larger: Units, members_smaller: int, members_larger: int) -> SparseDelta:
    """What a circle publishes into the larger one it joins: G_s/(G_s+G_l)·(A_s − A_l), dense, at four bits."""
    share = members_smaller / (members_smaller + members_larger)
    levels = quantise(np.rint(_difference(smaller, larger) * share).astype(np.int32), BITS)
    return SparseDelta(len(levels), np.arange(len(levels), dtype=np.uint32), levels)


def bridged_lately(log: EntrySet, other: bytes, rounds: int) -> bool:
    """Whether any chain shows a bridge to lineage `other` in its last `rounds` entries: then there is no hurry."""
    recent = (log.entries(Span(chain, max(1, head - rounds + 1), head)) for chain, head in log.heads.items())
    return any(entry.kind == BRIDGE and entry.other == other for entries in recent for entry in entries)


def _difference(theirs: Units, mine: Units) -> Units:
    wide = theirs.astype(np.int64) - mine
    return np.clip(wide, -MAX_UNITS, MAX_UNITS).astype(np.int32)
