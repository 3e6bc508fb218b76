"""A selector's hint travels with an entry: it is signed and bounded, and takes no bytes where there is none."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from p2pnode.compression.codec import encode_delta
from p2pnode.compression.selector import MAX_HINT_BYTES
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


def entry(hint: bytes) -> Entry:
    payload = encode_delta(dense_delta(np.arange(1, 11, dtype=np.int32)))
    facts = EntryFacts(0.5, 10, 0.1, round=3)
    return sign_entry(AUTHOR, Entry(bytes(32), "main", "", 0, 1, NO_HASH, facts=facts, payload=payload, hint=hint))


@pytest.mark.parametrize("hint", [b"", b"\x00", bytes(range(256))])
def test_entries_come_back_as_they_were_signed(hint: bytes) -> None:
    read = decode_entry(encode_entry(entry(hint)))
    assert read.hint == hint
    assert check_entry(read, RULES) == ""
    assert entry_id(read) == entry_id(entry(hint))
    assert read_claim(claim_of(read)).hint == hint


def test_an_entry_without_a_hint_has_no_field_for_it() -> None:
    without, with_hint = (msgspec.msgpack.decode(encode_entry(entry(hint))) for hint in (b"", b"\x01"))
    assert len(with_hint) == len(without) + 1


def test_the_hint_is_part_of_what_is_signed() -> None:
    forged = msgspec.structs.replace(entry(b"\x01"), hint=b"\x02")
    assert "signature" in check_entry(forged, RULES)


def test_a_hint_longer_than_allowed_is_refused() -> None:
    with pytest.raises(ValueError, match="malformed"):
        decode_entry(encode_entry(entry(bytes(MAX_HINT_BYTES + 1))))
