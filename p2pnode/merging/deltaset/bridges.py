"""Bridges between circles that have a delta set each: what is asked, answered and published. Pure.

ask      where has your circle changed most since mine last compared itself with it?
answer   at these coordinates, and these are our weights there
publish  half the difference, as an ordinary entry of my circle that leaves my residual alone
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec
import numpy as np

from ...compression.codec import decode_delta, encode_delta
from ...compression.delta import Indices, SparseDelta
from ...compression.quantise import quantise
from ...compression.residual import weighted, within
from ...compression.selectors.magnitude import largest
from ...compression.weights import MAX_UNITS, Units
from ...wire.types import Hash, decoded
from .chains import KEPT
from .entry import BRIDGE, UNION, Entry, delta_of
from .heads import Span
from .log import EntrySet
from .set import DeltaSet, apply

SHARE = 0.02  # of the coordinates
LEAST, MOST = 256, 131_072  # with fewer a message is mostly envelope; with more an answer would not fit into a call
MOST_DENSE = 1 << 20  # coordinates up to which a union contains all
BITS = 4
COARSE = 1 << 8  # units that answers are rounded to: 2⁻¹⁶ is far finer than needed, and saves half the bytes


def bridge_entries(size: int, max_entries: int) -> int:
    """How many coordinates a bridge has."""
    return min(max(LEAST, round(SHARE * size)), MOST, max_entries)


def latest(log: EntrySet, rounds: int) -> list[Entry]:
    """The last `rounds` kept entries of each chain."""
    spans = [Span(chain, max(1, head - rounds + 1), head) for chain, head in log.heads.items()]
    return [entry for span in spans for entry in log.entries(span)]


def most_changed(size: int, deltas: Iterable[SparseDelta], count: int) -> Indices:
    """The coordinates that the deltas together changed most, increasing. Needs a vector while it runs."""
    total = np.zeros(size, np.int32)
    for delta in deltas:
        apply(total, delta)
    return largest(total, count)


def sample(units: Units, places: Indices) -> SparseDelta:
    """The weights at some coordinates, rounded, as a partner gets them."""
    rounded = np.rint(units[places] / COARSE).astype(np.int64) * COARSE
    return SparseDelta(len(units), places, np.clip(rounded, -MAX_UNITS, MAX_UNITS).astype(np.int32))


def bridge_delta(mine: Units, theirs: SparseDelta) -> SparseDelta:
    """Half the way from my weights to theirs, at the coordinates they gave; at four bits, with weight 1."""
    half = _difference(theirs.values, mine) // 2
    return weighted(theirs.size, theirs.indices, quantise(half, BITS), 1.0)


def union_delta(smaller: Units, larger: Units, members_smaller: int, members_larger: int) -> SparseDelta:
    """What a circle publishes into the larger one it joins: G_s/(G_s+G_l)·(A_s − A_l) at four bits.

    It is dense, unless the model is so large that it would not fit into a call: then it has the largest differences.
    """
    share = members_smaller / (members_smaller + members_larger)
    step = np.rint(_difference(smaller, larger) * share).astype(np.int32)
    places = np.arange(len(step), dtype=np.uint32) if len(step) <= MOST_DENSE else largest(step, MOST)
    return SparseDelta(len(step), places, quantise(step[places], BITS))


def rounds_since(log: EntrySet, other: bytes) -> int:
    """How many entries its author has published since the last bridge to lineage `other`; KEPT when none is known."""
    bridges = [entry for entry in latest(log, KEPT) if entry.kind == BRIDGE and entry.other == other]
    heads = log.heads
    return min((heads[entry.chain] - entry.seq for entry in bridges), default=KEPT)


def _difference(theirs: Units, mine: Units) -> Units:
    wide = theirs.astype(np.int64) - mine
    return np.clip(wide, -MAX_UNITS, MAX_UNITS).astype(np.int32)


class Question(msgspec.Struct, frozen=True, array_like=True):
    """Asks where the weights of `lineage` changed most in its last `rounds` rounds, and what they are there."""

    lineage: Hash
    rounds: Annotated[int, msgspec.Meta(ge=1, le=KEPT)]


_decoder = msgspec.msgpack.Decoder(Question)


@dataclass(frozen=True)
class BridgeDraft:
    """A bridge to publish, unless another one to that lineage came within `pause` rounds; or a union, only once."""

    other: bytes
    delta: SparseDelta
    pause: int = 0
    kind: int = BRIDGE

    def with_delta(self, delta: SparseDelta) -> BridgeDraft:
        """The same with another delta."""
        return replace(self, delta=delta)

    def is_known(self, log: EntrySet) -> bool:
        """Whether some author has already published it."""
        if self.kind == UNION:
            return any(entry.kind == UNION and entry.other == self.other for entry in log)
        return rounds_since(log, self.other) < self.pause


class Bridges:
    """What a node asks and answers about its set. `deltas` gives the set as it is now; the lock is its policy's.

    `rate` is how many times the usual rate of bridges the run wants.
    """

    def __init__(self, deltas: Callable[[], DeltaSet], lock: AbstractContextManager[object], rate: float) -> None:
        self.rate = rate
        self._deltas = deltas
        self._lock = lock

    def ask(self, other: bytes, pause: int) -> bytes:
        """Light. The question to a node of lineage `other`; empty if our circle bridged there within `pause` rounds."""
        with self._lock:
            since = rounds_since(self._deltas().log, other)
        return b"" if since < pause else msgspec.msgpack.encode(Question(other, max(1, since)))

    def answer(self, request: bytes) -> bytes:
        """Heavy. The answer to a node of another circle; empty when it means another one. ValueError for nonsense."""
        asked, rules = decoded(_decoder, request, "bridge"), self._deltas().rules
        if asked.lineage != rules.lineage:
            return b""
        with self._lock:
            recent = latest(self._deltas().log, asked.rounds)
        changes = (delta_of(entry, rules) for entry in recent if entry.kind != BRIDGE)
        places = most_changed(rules.size, changes, bridge_entries(rules.size, rules.max_entries))
        with self._lock:
            answer = sample(self._deltas().units, places)
        return encode_delta(answer)

    def draft(self, other: bytes, answer: bytes, pause: int) -> BridgeDraft | None:
        """Heavy. The bridge to publish after an answer; None when there is none. ValueError for nonsense."""
        rules = self._deltas().rules
        theirs = decode_delta(answer, rules.size, bridge_entries(rules.size, rules.max_entries))
        if not len(theirs):
            return None
        with self._lock:
            mine = self._deltas().units[theirs.indices]
        return BridgeDraft(other, within(bridge_delta(mine, theirs), rules.max_norm_units), pause)
