"""Bridges: a step towards another circle's weights, as an ordinary entry (docs/design.md, between circles).

One node asks a partner of another circle for its weights on an index set S, and publishes half the difference into its
own circle. The residual is left alone.
"""

from __future__ import annotations

import numpy as np

from ..deltas.delta import Indices, SparseDelta
from ..deltas.make import weighted
from ..deltas.quantise import quantise
from ..deltas.select import largest
from ..weights import MAX_UNITS, Units
from .entry import BRIDGE
from .heads import Span
from .log import EntrySet

SHARE = 0.01  # of the coordinates: most changed, and again as many at random
BITS = 4


def index_set(now: Units, at_last_bridge: Units, seed: int, share: float = SHARE) -> Indices:
    """S: what changed most since the last bridge, and as many coordinates drawn from the seed; increasing."""
    count = max(1, round(share * len(now)))
    changed = largest(now - at_last_bridge, count)
    drawn = np.random.Generator(np.random.PCG64(seed)).choice(len(now), count, replace=False, shuffle=False)
    return np.union1d(changed, drawn.astype(np.uint32))


def sample(units: Units, places: Indices) -> SparseDelta:
    """What a partner answers: its weights on S."""
    return SparseDelta(len(units), places, np.clip(units[places], -MAX_UNITS, MAX_UNITS))


def bridge_delta(mine: Units, theirs: SparseDelta) -> SparseDelta:
    """Half the way to their weights where they gave them, at four bits, with weight 1."""
    half = _difference(theirs.values, mine[theirs.indices]) // 2
    levels = quantise(half.astype(np.int32), BITS)
    return weighted(len(mine), theirs.indices, levels, 1.0)


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
