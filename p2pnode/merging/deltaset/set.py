"""The delta set: entries and what they add up to, kept together.

    A = genesis + Σ entries that count

Law: equal digests ⇒ bit-equal A, whatever the order, the duplicates and the detours. Deltas are added up on the grid,
in int32 with wrap-around: saturating addition would not be associative. Honest publishers keep |A| within ±MAX_UNITS.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from blake3 import blake3

from ...compression.delta import SparseDelta
from ...compression.weights import MAX_UNITS, Floats, Units, from_units
from . import checksum
from .entry import Chain, Entry, EntryClaim, ForkProof, SetRules, delta_of
from .log import Change, EntrySet
from .vetoes import Veto

CHUNK_UNITS = 1 << 18  # coordinates that are hashed together: 1 MiB


class DeltaSet:
    """A circle's shared weights. `units` is A on the grid: read it, never write to it.

    `checksum` is the sum over A's entries (checksum.py); if that of `units` differs, they are damaged.
    """

    def __init__(self, rules: SetRules, genesis: Units) -> None:
        if genesis.shape != (rules.size,) or genesis.dtype != np.int32:
            raise ValueError(f"a genesis of shape {genesis.shape}, {genesis.dtype}; the rules say {rules.size} int32")
        self.rules = rules
        self.log = EntrySet(rules)
        self.units = genesis.copy()
        self.steps = 0  # Σ K of the entries that count: what learning-rate schedules follow, divided by G
        self.checksum_key = checksum.key_of(rules.lineage)
        self.checksum = checksum.of_weights(self.units, self.checksum_key)

    @property
    def heads(self) -> dict[Chain, int]:
        return self.log.heads

    def weights(self) -> Floats:
        """A as float32."""
        return from_units(self.units)

    def hash(self) -> bytes:
        """The hash of A; any two peers at equal digests have the same."""
        return weights_hash(self.units)

    def add(self, entry: Entry, judged: bool = False) -> Change:
        """Add an entry, and update A. `judged` says that it is one of our own, which counted before a restart."""
        return self._follow(self.log.add(entry, judged))

    def add_proof(self, proof: ForkProof) -> Change:
        """Add a proof of a fork, and update A."""
        return self._follow(self.log.add_proof(proof))

    def add_veto(self, veto: Veto) -> Change:
        """Add a veto against an author, and update A."""
        return self._follow(self.log.add_veto(veto))

    def compare_claims(self, claims: list[EntryClaim], chain: Chain) -> Change:
        """Look for a fork behind equal heads with unequal digests, and update A."""
        return self._follow(self.log.compare_claims(claims, chain))

    def _follow(self, change: Change) -> Change:
        for entry in change.added:
            apply(self.units, delta_of(entry, self.rules))
            self.checksum = checksum.added(self.checksum, _checksum_of(entry, self.rules, self.checksum_key))
            self.steps += entry.steps
        for entry in change.removed:
            unapply(self.units, delta_of(entry, self.rules))
            self.checksum = checksum.less(self.checksum, _checksum_of(entry, self.rules, self.checksum_key))
            self.steps -= entry.steps
        return change


def _checksum_of(entry: Entry, rules: SetRules, key: int) -> checksum.Checksum:
    compute = _cached_checksum if len(entry.payload) <= _SMALL_BYTES else _compute_checksum
    return compute(entry, rules, key)


def _compute_checksum(entry: Entry, rules: SetRules, key: int) -> checksum.Checksum:
    return checksum.of_delta(delta_of(entry, rules), key)


_SMALL_BYTES = 1 << 14
_cached_checksum = lru_cache(maxsize=64)(_compute_checksum)  # in a simulation all nodes add the same entries


def apply(units: Units, delta: SparseDelta) -> None:
    """A += delta, in place. `unapply` undoes it exactly."""
    _fits(units, delta)
    if delta.dense:
        units += delta.values
    else:
        np.add.at(units, delta.indices, delta.values)  # half the time of fetching, adding and putting back


def unapply(units: Units, delta: SparseDelta) -> None:
    """A −= delta, in place."""
    _fits(units, delta)
    if delta.dense:
        units -= delta.values
    else:
        np.subtract.at(units, delta.indices, delta.values)


def within_range(units: Units, delta: SparseDelta) -> SparseDelta:
    """The part of `delta` that a publisher may publish on top of A.

    What would leave ±MAX_UNITS, or go on further outside, is left out. A weight that somebody has pushed outside may be
    brought back.
    """
    _fits(units, delta)
    before = (units if delta.dense else units[delta.indices]).astype(np.int64)
    fine = np.abs(before + delta.values) <= np.maximum(MAX_UNITS, np.abs(before))
    return delta if fine.all() else SparseDelta(delta.size, delta.indices[fine], delta.values[fine])


def weights_hash(units: Units) -> bytes:
    """The hash of A: over the hashes of its chunks' little-endian bytes."""
    raw = np.ascontiguousarray(units, "<i4")
    chunks = (raw[start : start + CHUNK_UNITS].view(np.uint8).data for start in range(0, len(raw), CHUNK_UNITS))
    hashes = b"".join(blake3(chunk).digest() for chunk in chunks)
    return blake3(b"p2pnode weights 1\0" + len(units).to_bytes(8, "little") + hashes).digest()


def _fits(units: Units, delta: SparseDelta) -> None:
    if delta.size != len(units) or units.dtype != np.int32:
        raise ValueError(f"a delta of {delta.size} coordinates for {len(units)} {units.dtype}")
