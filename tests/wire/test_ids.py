"""Identity: libp2p's formats, and signatures that cannot be passed off as another's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.wire.ids import Identity, base58_decode, base58_encode, known_signed_by, public_key, signed_by

SEED = bytes(range(32))


def test_a_known_key_has_its_known_peer_id() -> None:
    # libp2p's specification of peer ids: an Ed25519 key is inlined, so its id begins with 12D3KooW.
    identity = Identity(SEED)
    assert identity.peer_id.startswith("12D3KooW")
    assert Identity(SEED).peer_id == identity.peer_id


@given(st.binary(min_size=32, max_size=32))
def test_key_file_round_trip(seed: bytes) -> None:
    identity = Identity(seed)
    again = Identity.from_key_file(identity.to_key_file())
    assert again.peer_id == identity.peer_id


@given(st.binary(max_size=80))
def test_other_bytes_are_no_key_file(data: bytes) -> None:
    with pytest.raises(ValueError, match="key"):
        Identity.from_key_file(data)


def test_a_flipped_bit_in_the_key_file_is_noticed() -> None:
    good = Identity(SEED).to_key_file()
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 1
        with pytest.raises(ValueError, match="key"):
            Identity.from_key_file(bytes(bad))


@given(st.binary(max_size=40))
def test_base58_round_trip(raw: bytes) -> None:
    if raw:
        assert base58_decode(base58_encode(raw)) == raw


@given(st.text(max_size=80))
def test_any_text_is_a_peer_id_or_a_value_error(text: str) -> None:
    try:
        public_key(text)
    except ValueError:
        assert not signed_by(text, b"", b"")


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_a_signature_fits_one_message_and_one_peer(message: bytes, other: bytes) -> None:
    one, two = Identity(SEED), Identity(bytes(32))
    signature = one.sign(message)
    assert signed_by(one.peer_id, message, signature)
    assert not signed_by(two.peer_id, message, signature)
    if other != message:
        assert not signed_by(one.peer_id, other, signature)


def test_only_short_messages_are_remembered() -> None:
    one = Identity(SEED)
    long = bytes(50_000)
    before = known_signed_by.cache_info().currsize
    assert signed_by(one.peer_id, long, one.sign(long))
    assert not signed_by(one.peer_id, long + b"x", one.sign(long))
    assert known_signed_by.cache_info().currsize == before
