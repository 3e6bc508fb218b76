"""Proofs that an author contradicted itself, which make everybody leave out its chain from there on."""

from __future__ import annotations

import msgspec

from ...wire.ids import signed_by
from .entry import Chain, Entry, EntryClaim, SetRules, claim_id, claim_of, read_claim


class ForkProof(msgspec.Struct, frozen=True, array_like=True):
    """Two claims by one author in one chain that cannot both be honest.

    Either they have the same seq and differ, or the second comes right after the first and names another one as the
    one before. Anybody can check it, and everybody draws the same conclusion.
    """

    first: EntryClaim
    second: EntryClaim


def prove(first: Entry, second: Entry) -> ForkProof:
    """The proof from two entries that contradict each other."""
    return ForkProof(claim_of(first), claim_of(second))


def read_proof(proof: ForkProof, rules: SetRules) -> tuple[Chain, int]:
    """The chain a proof is about and the seq from which it is left out; ValueError when it proves nothing."""
    first, second = read_claim(proof.first), read_claim(proof.second)
    if first.chain != second.chain:
        raise ValueError("claims of different chains")
    for entry in (first, second):
        if entry.lineage != rules.lineage or entry.model != rules.model:
            raise ValueError("claims of another lineage or model")
    for claim in (proof.first, proof.second):
        if not signed_by(first.peer, claim.content, claim.signature):
            raise ValueError("a claim's signature does not fit")
    if first.seq == second.seq and claim_id(proof.first) != claim_id(proof.second):
        return first.chain, first.seq
    if second.seq == first.seq + 1 and second.previous != claim_id(proof.first):
        return first.chain, second.seq
    raise ValueError("the claims do not contradict each other")
