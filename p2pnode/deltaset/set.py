"""The delta set: entries and what they add up to, kept together.

    A = genesis + Σ entries that count

Law: equal digests ⇒ bit-equal A, whatever the order, the duplicates and the detours.
"""

from __future__ import annotations

import numpy as np

from ..weights import Floats, Units, from_units
from .accumulate import apply, unapply, weights_hash
from .entry import Chain, Claim, Entry, SetRules, delta_of
from .forks import ForkProof
from .log import Change, EntrySet


class DeltaSet:
    """A circle's shared weights. `units` is A on the grid: read it, never write to it."""

    def __init__(self, rules: SetRules, genesis: Units) -> None:
        if genesis.shape != (rules.size,) or genesis.dtype != np.int32:
            raise ValueError(f"a genesis of shape {genesis.shape}, {genesis.dtype}; the rules say {rules.size} int32")
        self.rules = rules
        self.log = EntrySet(rules)
        self.units = genesis.copy()
        self.steps = 0  # Σ K of the entries that count: what learning-rate schedules follow, divided by G

    @property
    def heads(self) -> dict[Chain, int]:
        return self.log.heads

    def weights(self) -> Floats:
        """A as float32."""
        return from_units(self.units)

    def hash(self) -> bytes:
        """Of A; at equal digests any two peers have the same."""
        return weights_hash(self.units)

    def add(self, entry: Entry) -> Change:
        """Take an entry, and let A follow."""
        return self._follow(self.log.add(entry))

    def add_proof(self, proof: ForkProof) -> Change:
        """Take a proof of a fork, and let A follow."""
        return self._follow(self.log.add_proof(proof))

    def compare_claims(self, claims: list[Claim], chain: Chain) -> Change:
        """Look for a fork that equal heads hide (their digests differ), and let A follow."""
        return self._follow(self.log.compare_claims(claims, chain))

    def _follow(self, change: Change) -> Change:
        for entry in change.added:
            apply(self.units, delta_of(entry, self.rules))
            self.steps += entry.steps
        for entry in change.removed:
            unapply(self.units, delta_of(entry, self.rules))
            self.steps -= entry.steps
        return change
