"""Signed records in a closed world: the attacks of docs/architecture.md, one test each, and the store's laws."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.wire.ids import Identity
from p2pnode.wire.records import (
    MAX_KEYS_PER_PEER,
    MAX_RECORDS_PER_KEY,
    MAX_TTL,
    MAX_VALUE_BYTES,
    TIME_SLACK,
    RecordStore,
    SignedRecord,
    VerifiedRecords,
    sign_record,
    why_refused,
)

ALICE, MALLORY = Identity(b"a" * 32), Identity(b"m" * 32)
KEY = "peers/run/p"
NOW = 1_000_000.0


def record(value: bytes = b"hello", expiry: float = NOW + 60, key: str = KEY, who: Identity = ALICE) -> SignedRecord:
    return sign_record(who, key, value, expiry)


def test_a_good_record_is_stored_and_found() -> None:
    store = RecordStore()
    assert store.put(record(), ALICE.peer_id, NOW) == ("stored", "")
    assert store.find(KEY, NOW) == [record()]


@pytest.mark.parametrize("key", ["", "peers", "peers/", "models/x", "peers/a/b/c/d", "peers/ü", "peers/" + "x" * 65])
def test_unknown_keys_are_refused(key: str) -> None:
    assert why_refused(record(key=key), NOW) == "unknown key"


@pytest.mark.parametrize("expiry", [math.inf, -math.inf, math.nan])
def test_squatting_with_a_time_that_never_comes_is_refused(expiry: float) -> None:
    assert "finite" in why_refused(record(expiry=expiry), NOW)
    assert RecordStore().put(record(expiry=expiry), ALICE.peer_id, NOW)[0] == "refused"


def test_a_ten_year_expiry_is_refused() -> None:
    assert why_refused(record(expiry=NOW + 10 * 365 * 86400), NOW)
    assert not why_refused(record(expiry=NOW + MAX_TTL), NOW)


def test_an_expired_record_is_refused() -> None:
    assert why_refused(record(expiry=NOW - TIME_SLACK - 1), NOW)


def test_an_oversized_value_is_refused() -> None:
    assert not why_refused(record(value=b"x" * MAX_VALUE_BYTES), NOW)
    assert "bytes" in why_refused(record(value=b"x" * (MAX_VALUE_BYTES + 1)), NOW)


def test_nobody_overwrites_anothers_record() -> None:
    store = RecordStore()
    store.put(record(), ALICE.peer_id, NOW)
    forged = msgspec.structs.replace(record(b"evil", NOW + 90, who=MALLORY), peer=ALICE.peer_id)
    assert store.put(forged, ALICE.peer_id, NOW)[0] == "refused"
    assert store.put(forged, MALLORY.peer_id, NOW)[0] == "refused"
    assert store.find(KEY, NOW) == [record()]


@pytest.mark.parametrize("field", ["key", "expiry", "value"])
def test_no_signed_field_can_be_changed(field: str) -> None:
    changed = {"key": "peers/run/p1", "expiry": NOW + 61, "value": b"hellp"}
    bent = msgspec.structs.replace(record(), **{field: changed[field]})
    assert why_refused(bent, NOW) == "signature does not fit"


def test_replaying_an_older_record_does_not_evict_the_newer_one() -> None:
    store = RecordStore()
    old, new = record(b"old", NOW + 30), record(b"new", NOW + 90)
    store.put(new, ALICE.peer_id, NOW)
    assert store.put(old, ALICE.peer_id, NOW)[0] == "older"
    assert store.find(KEY, NOW + 31) == [new], "the newer record lives on past the older one's expiry"


def test_only_its_owner_stores_a_record() -> None:
    assert RecordStore().put(record(), MALLORY.peer_id, NOW)[0] == "refused"


def test_a_key_is_never_larger_than_its_bound_and_members_can_still_renew() -> None:
    store = RecordStore()
    crowd = [Identity(number.to_bytes(32, "big")) for number in range(MAX_RECORDS_PER_KEY + 5)]
    verdicts = [store.put(record(who=who), who.peer_id, NOW)[0] for who in crowd]
    assert verdicts.count("stored") == MAX_RECORDS_PER_KEY
    assert verdicts[-1] == "full"
    assert len(store.find(KEY, NOW)) == MAX_RECORDS_PER_KEY
    renewed = record(who=crowd[0], expiry=NOW + 100)
    assert store.put(renewed, crowd[0].peer_id, NOW)[0] == "stored"


def test_one_peer_cannot_fill_the_store_with_keys() -> None:
    store = RecordStore()
    verdicts = [store.put(record(key=f"peers/run/p{n}"), ALICE.peer_id, NOW)[0] for n in range(MAX_KEYS_PER_PEER + 3)]
    assert verdicts.count("stored") == MAX_KEYS_PER_PEER


def test_the_store_is_bounded_in_all() -> None:
    store = RecordStore(max_records=3)
    people = [Identity(bytes([n]) * 32) for n in range(1, 6)]
    for who in people:
        store.put(record(who=who), who.peer_id, NOW)
    assert len(store) == 3


def test_expired_records_make_room() -> None:
    store = RecordStore(max_records=1)
    store.put(record(expiry=NOW + 5), ALICE.peer_id, NOW)
    assert store.put(record(who=MALLORY), MALLORY.peer_id, NOW)[0] == "full"
    assert store.put(record(who=MALLORY), MALLORY.peer_id, NOW + 6)[0] == "stored"
    assert len(store) == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50), st.integers(0, 3)), max_size=40))
def test_the_store_keeps_each_peers_longest_lived_record(script: list[tuple[str, int, int]]) -> None:
    """Whatever order records come in and time passes, find() = the best unexpired record per peer."""
    store, now = RecordStore(), NOW
    best: dict[str, SignedRecord] = {}
    for letter, ttl, passed in script:
        now += passed
        who = Identity(letter.encode() * 32)
        offered = record(letter.encode(), now + ttl, who=who)
        store.put(offered, who.peer_id, now)
        kept = best.get(who.peer_id)
        if kept is None or kept.expiry <= now or offered.expiry > kept.expiry:
            best[who.peer_id] = offered
    alive = {peer: kept for peer, kept in best.items() if kept.expiry > now}
    assert {found.peer: found for found in store.find(KEY, now)} == alive
    assert len(store) == len(alive)


def test_reading_takes_each_peers_latest_good_record_from_lying_storers() -> None:
    old, new = record(b"old", NOW + 30), record(b"new", NOW + 90)
    forged = msgspec.structs.replace(new, value=b"forged", expiry=NOW + 120)
    nan = msgspec.structs.replace(new, expiry=math.nan)
    elsewhere = record(key="peers/other/p")
    read = VerifiedRecords().latest(KEY, [new, forged, nan, elsewhere, old], NOW)
    assert read == {ALICE.peer_id: new}


def test_reading_remembers_checked_signatures_but_not_their_time() -> None:
    verified = VerifiedRecords()
    assert verified.is_good(record(), NOW)
    assert verified.is_good(record(), NOW + 1)
    assert not verified.is_good(record(), NOW + 60 + TIME_SLACK + 1)
