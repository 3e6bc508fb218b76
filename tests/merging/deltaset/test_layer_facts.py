"""Scores of layers in an entry's facts: signed with it, bounded, and nothing to entries that have none."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from p2pnode.compression.codec import encode_delta
from p2pnode.compression.selectors.layer_scores import MAX_LAYERS
from p2pnode.compression.weights import to_units
from p2pnode.merging.deltaset.entry import (
    NO_HASH,
    Entry,
    EntryFacts,
    check_entry,
    claim_of,
    decode_entry,
    encode_entry,
    entry_id,
    read_claim,
    rules_for,
    sign_entry,
)
from p2pnode.wire.ids import Identity
from tests.compression.dense import dense_delta

GENESIS = to_units(np.linspace(-1, 1, 10).astype(np.float32))
RULES = rules_for("main", bytes(32), "layout", GENESIS, max_density=1.0)
AUTHOR = Identity(bytes(range(32)))


def entry(layers: bytes) -> Entry:
    payload = encode_delta(dense_delta(np.arange(1, 11, dtype=np.int32)))
    facts = EntryFacts(0.5, 10, 0.1, round=3, layers=layers)
    return sign_entry(AUTHOR, Entry(bytes(32), "main", "", 0, 1, NO_HASH, facts=facts, payload=payload))


@pytest.mark.parametrize("layers", [b"", b"\x00", bytes(range(256))])
def test_entries_come_back_as_they_were_signed(layers: bytes) -> None:
    told = decode_entry(encode_entry(entry(layers)))
    assert told.facts.layers == layers
    assert check_entry(told, RULES) == ""
    assert entry_id(told) == entry_id(entry(layers))
    assert read_claim(claim_of(told)).facts.layers == layers


def test_scores_are_part_of_what_is_signed() -> None:
    forged = msgspec.structs.replace(entry(b"\x01"), facts=EntryFacts(0.5, 10, 0.1, round=3, layers=b"\x02"))
    assert "signature" in check_entry(forged, RULES)


def test_more_scores_than_allowed_are_refused() -> None:
    with pytest.raises(ValueError, match="malformed"):
        decode_entry(encode_entry(entry(bytes(MAX_LAYERS + 1))))
