"""Reading without trust: too many bytes are not looked at, and whatever is wrong is a ValueError with a reason."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.wire.types import Decoder, decoded

WORDS = msgspec.msgpack.Decoder(dict[str, int])
JSON_WORDS = msgspec.json.Decoder(dict[str, int])
NESTED = msgspec.msgpack.Decoder()


def test_what_is_there_is_read() -> None:
    data = msgspec.msgpack.encode({"a": 1})
    assert decoded(WORDS, data, "word", len(data)) == {"a": 1} == decoded(JSON_WORDS, b'{"a": 1}', "word")


def test_a_byte_too_many_is_refused_before_it_is_decoded() -> None:
    class Untouched:
        def decode(self, data: bytes, /) -> None:
            raise AssertionError("decoded")

    with pytest.raises(ValueError, match=r"^word of 1,001 bytes, 1,000 allowed$"):
        decoded(Untouched(), bytes(1001), "word", 1000)


@pytest.mark.parametrize(
    ("decoder", "data"),
    [
        (WORDS, b""),
        (WORDS, msgspec.msgpack.encode({"a": "b"})),
        (WORDS, b"\x81\xa1\xff\x01"),  # no UTF-8
        (JSON_WORDS, b'{"\xff": 1}'),
        (NESTED, b"\x91" * 100_000),  # too deep
    ],
)
def test_whatever_is_wrong_is_said(decoder: Decoder[object], data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^malformed word: .+") as error:
        decoded(decoder, data, "word")
    assert len(str(error.value)) < 150


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decoder in (WORDS, JSON_WORDS, NESTED):
        with suppress(ValueError):
            decoded(decoder, data, "word")
