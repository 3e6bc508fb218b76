"""Bridges: a step towards another circle's weights, as an ordinary entry (docs/design.md, between circles).

One node asks a partner of another circle where that circle's weights changed most of late and what they are there, and
publishes half the difference into its own circle. The residual is left alone. The partner chooses the places: where
*we* changed most, half the way to weights that did not change would undo half of what we learned (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...compression.delta import Indices, SparseDelta
from ...compression.quantise import quantise
from ...compression.residual import weighted
from ...compression.selectors.magnitude import largest
from ...compression.weights import MAX_UNITS, Units
from .accumulate import apply
from .entry import BRIDGE, Entry
from .heads import Span
from .log import EntrySet
from .retention import KEPT

SHARE = 0.02  # of the coordinates
LEAST, MOST = 256, 131_072  # below, a message is mostly envelope; above, an answer would not fit into a call
MOST_DENSE = 1 << 20  # coordinates of a union that has all of them
BITS = 4
COARSE = 1 << 8  # units an answer is rounded to: 2⁻¹⁶, far finer than four bits of a difference, and half the bytes


def bridge_entries(size: int, max_entries: int) -> int:
    """How many coordinates a bridge has."""
    return min(max(LEAST, round(SHARE * size)), MOST, max_entries)


def latest(log: EntrySet, rounds: int) -> list[Entry]:
    """The last `rounds` kept entries of each chain."""
    spans = [Span(chain, max(1, head - rounds + 1), head) for chain, head in log.heads.items()]
    return [entry for span in spans for entry in log.entries(span)]


def most_changed(size: int, deltas: Iterable[SparseDelta], count: int) -> Indices:
    """Where deltas together changed most; increasing. Costs a vector while it runs, and nothing between bridges."""
    total = np.zeros(size, np.int32)
    for delta in deltas:
        apply(total, delta)
    return largest(total, count)


def sample(units: Units, places: Indices) -> SparseDelta:
    """What a partner tells of its weights."""
    rounded = np.rint(units[places] / COARSE).astype(np.int64) * COARSE
    return SparseDelta(len(units), places, np.clip(rounded, -MAX_UNITS, MAX_UNITS).astype(np.int32))


def bridge_delta(mine: Units, theirs: SparseDelta) -> SparseDelta:
    """Half the way to their weights from mine, given where they gave theirs; at four bits, with weight 1."""
    half = _difference(theirs.values, mine) // 2
    return weighted(theirs.size, theirs.indices, quantise(half, BITS), 1.0)


def union_delta(smaller: Units, larger: Units, members_smaller: int, members_larger: int) -> SparseDelta:
    """What a circle publishes into the larger one it joins: G_s/(G_s+G_l)·(A_s − A_l) at four bits.

    Dense, but for models so large that it would not fit into a call: there it is where they differ most.
    """
    share = members_smaller / (members_smaller + members_larger)
    step = np.rint(_difference(smaller, larger) * share).astype(np.int32)
    places = np.arange(len(step), dtype=np.uint32) if len(step) <= MOST_DENSE else largest(step, MOST)
    return SparseDelta(len(step), places, quantise(step[places], BITS))


def rounds_since(log: EntrySet, other: bytes) -> int:
    """How many entries of its author ago the last bridge to lineage `other` was; KEPT when none is known."""
    bridges = [entry for entry in latest(log, KEPT) if entry.kind == BRIDGE and entry.other == other]
    heads = log.heads
    return min((heads[entry.chain] - entry.seq for entry in bridges), default=KEPT)


def _difference(theirs: Units, mine: Units) -> Units:
    wide = theirs.astype(np.int64) - mine
    return np.clip(wide, -MAX_UNITS, MAX_UNITS).astype(np.int32)
