"""Entries as bytes: exact for friends, harmless from strangers."""

from __future__ import annotations

import math
import random

import msgspec
import numpy as np
import pytest

from p2pnode.compression.codec import encode_delta
from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.quantise import quantise
from p2pnode.merging.deltaset.entry import (
    BRIDGE,
    UNION,
    EntryFacts,
    ForkProof,
    Mark,
    check_entry,
    claim_id,
    claim_of,
    decode_entry,
    delta_of,
    encode_entry,
    entry_id,
    prove,
    read_claim,
    read_proof,
    rules_for,
)
from tests.compression.dense import dense_delta
from tests.merging.deltaset.chains import GENESIS, LINEAGE, RULES, chain, delta, entry

WHOLE = entry(0, None, 3, facts=EntryFacts(0.5, 640, 0.01, 7), trained=Mark(b"t" * 16, 4), published=Mark(b"p", 9))


def test_what_is_encoded_is_decoded() -> None:
    assert decode_entry(encode_entry(WHOLE)) == WHOLE
    assert check_entry(WHOLE, RULES) == ""
    assert delta_of(WHOLE, RULES) == delta(3)


def test_an_entry_costs_little_besides_its_payload() -> None:
    assert len(encode_entry(WHOLE)) - len(WHOLE.payload) < 330


def test_claims_are_small_and_name_the_entry() -> None:
    claim = claim_of(WHOLE)
    assert claim_id(claim) == entry_id(WHOLE)
    assert len(msgspec.msgpack.encode(claim)) < 400
    about = read_claim(claim)
    assert (about.chain, about.seq, about.previous) == (WHOLE.chain, WHOLE.seq, WHOLE.previous)
    assert entry_id(WHOLE) != entry_id(msgspec.structs.replace(WHOLE, steps=11))


def test_rules_bound_an_update_by_the_genesis_norm() -> None:
    norm = math.sqrt(float(np.sum(GENESIS.astype(np.float64) ** 2)))
    rules = rules_for("m", LINEAGE, "layout", GENESIS, norm_ratio=0.25, max_density=0.01)
    assert rules.max_norm_units == pytest.approx(norm / 4, rel=1e-6)
    assert rules.max_entries == 1


def test_the_norm_bound_is_exact() -> None:
    rules = rules_for("digits", LINEAGE, "layout", np.array([2, *[0] * 39], np.int32), norm_ratio=1.0)
    assert rules.max_norm_units == 2
    for value, fits in ((2, True), (-2, True), (3, False)):
        payload = encode_delta(SparseDelta(40, np.array([5], np.uint32), np.array([value], np.int32)))
        assert (check_entry(entry(0, None, 1, payload=payload), rules) == "") == fits


def test_a_union_has_all_coordinates_and_an_update_may_not() -> None:
    payload = encode_delta(dense_delta(quantise(GENESIS // 4, 4)))
    assert check_entry(entry(0, None, 1, kind=UNION, other=b"o" * 32, payload=payload), RULES) == ""
    assert "at most 20" in check_entry(entry(0, None, 1, payload=payload), RULES)
    assert check_entry(entry(0, None, 1, kind=BRIDGE, other=b"o" * 32), RULES) == ""


def test_mutated_entries_and_proofs_never_crash_and_never_count() -> None:
    """Whatever is changed, the entry is refused, unless the bytes mean the same entry."""
    rng = random.Random(1)
    first, other = chain(0, 1)[0], chain(0, 1, seed=5)[0]
    samples = [encode_entry(one) for one in (WHOLE, *chain(1, 3))]
    whole_proof = msgspec.msgpack.encode(prove(first, other))
    originals = {decode_entry(data) for data in samples}
    for _ in range(20_000):
        data = bytearray(rng.choice(samples))
        for _ in range(rng.choice([1, 1, 3])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            read = decode_entry(bytes(data[: rng.choice([len(data), rng.randrange(len(data))])]))
        except ValueError:
            continue
        assert read in originals or check_entry(read, RULES)
    for _ in range(5_000):
        data = bytearray(whole_proof)
        data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            proof = msgspec.msgpack.decode(data, type=ForkProof)
            assert read_proof(proof, RULES) == (first.chain, 1)
        except (ValueError, msgspec.DecodeError):
            continue
