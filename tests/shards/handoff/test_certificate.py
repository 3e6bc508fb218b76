"""Certificates: ranked alike by everybody, and signed by those they name."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.shards.handoff.certificate import (
    MAX_KEEPERS,
    MAX_LEAP,
    Certificate,
    certificate_id,
    check_certificate,
    check_offer,
    check_release,
    claim,
    copies_wanted,
    countersign,
    following,
    is_offer,
    offer,
    rank,
    sign_release,
)
from p2pnode.shards.handoff.messages import (
    MAX_BYTES,
    AnyMessage,
    Certified,
    HandoffMessage,
    Kept,
    MayDrop,
    Offer,
    Refusal,
    Release,
    about,
    check_handoff,
    decode_handoff,
    encode_handoff,
)
from p2pnode.shards.handoff.state import Record, decode_record, encode_record
from p2pnode.wire.ids import Identity

ANN, BOB, EVE = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
A, B, E = ANN.peer_id, BOB.peer_id, EVE.peer_id
SHARD = "ab" * 16
CLAIM = claim(ANN, "run", SHARD, (A, B))
OFFER = offer(ANN, following(CLAIM, 1, B, (B, A)))
GIVEN = countersign(BOB, OFFER)
TAKEN = offer(BOB, following(CLAIM, 1, B, (B,), takeover=True))
CHANGES = {
    "run": "other",
    "shard": "cd" * 16,
    "term": 7,
    "giver": E,
    "to": E,
    "keepers": (B, E),
    "previous": b"x" * 32,
    "takeover": True,
}


def changed(certificate: Certificate, **fields: object) -> Certificate:
    return msgspec.structs.replace(certificate, **fields)


def test_what_honest_peers_make_passes():
    for certificate in (CLAIM, GIVEN, TAKEN):
        check_certificate(certificate)
    check_offer(OFFER, A, B)
    check_release(GIVEN, A, sign_release(BOB, GIVEN, A))


@pytest.mark.parametrize("field", CHANGES)
@pytest.mark.parametrize("certificate", [CLAIM, GIVEN, TAKEN], ids=["claim", "transfer", "takeover"])
def test_no_word_of_a_certificate_can_be_changed(certificate, field):
    other = changed(certificate, **{field: CHANGES[field]})
    if other == certificate:
        return
    with pytest.raises(ValueError, match=r"\w+"):
        check_certificate(other)


@pytest.mark.parametrize(
    ("certificate", "reason"),
    [
        (OFFER, "receiver's signature"),
        (changed(GIVEN, giver_signature=b""), "giver's signature"),
        (changed(GIVEN, giver_signature=GIVEN.receiver_signature), "giver's signature"),
        (countersign(EVE, OFFER), "receiver's signature"),
        (changed(GIVEN, keepers=(A,)), "not among the keepers"),
        (changed(GIVEN, keepers=(B, B)), "named twice"),
        (changed(GIVEN, previous=b""), "only a claim"),
        (changed(GIVEN, previous=b"short"), "wrong length"),
        (changed(CLAIM, to=B), "term 0 is for claims"),
        (changed(TAKEN, giver=A), "its own signer"),
        (changed(TAKEN, receiver_signature=b"x"), "one signature"),
    ],
)
def test_each_fault_has_its_reason(certificate, reason):
    with pytest.raises(ValueError, match=reason):
        check_certificate(certificate)


@pytest.mark.parametrize(
    ("certificate", "giver", "me", "reason"),
    [
        (OFFER, E, B, "from the sender"),
        (OFFER, A, E, "from the sender"),
        (GIVEN, A, B, "not an offer"),
        (changed(OFFER, term=2), A, B, "signature"),
    ],
)
def test_offers_are_from_the_sender_to_the_receiver(certificate, giver, me, reason):
    with pytest.raises(ValueError, match=reason):
        check_offer(certificate, giver, me)


def test_an_offer_ranks_as_the_certificate_it_becomes():
    assert certificate_id(OFFER) == certificate_id(GIVEN) and rank(OFFER) == rank(GIVEN)
    assert is_offer(OFFER) and not is_offer(GIVEN) and not is_offer(TAKEN)
    assert rank(None) < rank(CLAIM) < min(rank(GIVEN), rank(TAKEN))
    assert rank(GIVEN) != rank(TAKEN)


def test_a_takeover_never_licenses_dropping():
    assert GIVEN.licenses_dropping and CLAIM.licenses_dropping and not TAKEN.licenses_dropping
    with pytest.raises(ValueError, match="cannot release"):
        check_release(TAKEN, A, sign_release(BOB, TAKEN, A))


@pytest.mark.parametrize(
    "signature", [sign_release(EVE, GIVEN, A), sign_release(BOB, GIVEN, E), sign_release(BOB, CLAIM, A), b""]
)
def test_only_the_holder_releases_and_only_the_peer_it_names(signature):
    with pytest.raises(ValueError, match="not signed by the holder"):
        check_release(GIVEN, A, signature)


MESSAGES: list[AnyMessage] = [
    Offer(OFFER),
    Refusal("run", SHARD, 1, "full"),
    Certified(GIVEN),
    Kept("run", SHARD, certificate_id(GIVEN)),
    MayDrop(GIVEN),
    Release(GIVEN, A, sign_release(BOB, GIVEN, A)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_travel_whole(message):
    data = encode_handoff(message)
    assert decode_handoff(data) == message and about(message) == ("run", SHARD)
    assert len(data) < 900
    for cut in range(len(data)):
        with pytest.raises(ValueError, match="malformed"):
            decode_handoff(data[:cut])


def test_the_largest_certificate_fits_a_message():
    keepers = tuple(Identity(bytes([number]) * 32).peer_id for number in range(1, MAX_KEEPERS + 1))
    largest = countersign(BOB, offer(ANN, changed(GIVEN, run="r" * 64, keepers=keepers, term=(1 << 62) - 1)))
    release = Release(largest, A, sign_release(BOB, largest, A))
    assert decode_handoff(encode_handoff(release)) == release


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_a_value_error(data):
    with contextlib.suppress(ValueError):
        assert isinstance(decode_handoff(data), HandoffMessage)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_never_gets_a_certificate_through(message, place, bit):
    data = bytearray(encode_handoff(message))
    data[place % len(data)] ^= 1 << bit
    try:
        received = decode_handoff(bytes(data))
        check_handoff(received, A, B if isinstance(message, Offer) else A, CLAIM)
    except ValueError:
        return
    if not isinstance(received, Refusal | Kept):
        assert received.certificate == message.certificate


def test_too_large_a_message_is_not_looked_at():
    with pytest.raises(ValueError, match="allowed"):
        decode_handoff(bytes(MAX_BYTES + 1))


@pytest.mark.parametrize(
    "fields",
    [{"term": -1}, {"term": 1 << 62}, {"keepers": ()}, {"keepers": (B,) * 9}, {"shard": "x"}, {"run": "r" * 65}],
    ids=str,
)
def test_fields_out_of_bounds_are_malformed(fields):
    with pytest.raises(ValueError, match="malformed"):
        decode_handoff(encode_handoff(Certified(changed(GIVEN, **fields))))


def test_a_term_far_ahead_is_refused_so_terms_cannot_be_used_up():
    far = countersign(BOB, offer(ANN, changed(GIVEN, term=MAX_LEAP + 2)))
    with pytest.raises(ValueError, match="too far ahead"):
        check_handoff(Certified(far), A, E, GIVEN)
    check_handoff(Certified(far), A, E, changed(GIVEN, term=2))


def test_a_release_for_somebody_else_is_refused():
    with pytest.raises(ValueError, match="somebody else"):
        check_handoff(MESSAGES[-1], B, E, GIVEN)


def test_records_survive_the_disk_and_damage_is_noticed():
    record = Record(GIVEN, 5, kept=True)
    assert decode_record(encode_record(record)) == record
    for bad in (b"", b"\x00", encode_record(record)[:-1], encode_record(record)[:40]):
        with pytest.raises(ValueError, match="malformed"):
            decode_record(bad)


def test_how_many_keepers_for_how_many_peers():
    assert [copies_wanted(peers) for peers in (1, 2, 3, 7, 8, 100)] == [1, 1, 2, 2, 3, 3]
