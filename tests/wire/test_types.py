"""Reading without trust: too many bytes are not looked at, and whatever is wrong is a ValueError with a reason."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import p2pnode
from p2pnode.jobs.train.plan import Digest
from p2pnode.wire.status import FigureName
from p2pnode.wire.types import BytesDecoder, JobName, ShardText, decoded

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
def test_whatever_is_wrong_is_said(decoder: BytesDecoder[object], data: bytes) -> None:
    with pytest.raises(ValueError, match=r"^malformed word: .+") as error:
        decoded(decoder, data, "word")
    assert len(str(error.value)) < 150


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for decoder in (WORDS, JSON_WORDS, NESTED):
        with suppress(ValueError):
            decoded(decoder, data, "word")


@pytest.mark.parametrize(
    ("kind", "right"),
    [(JobName, "main"), (ShardText, "ab" * 16), (FigureName, "mean"), (Digest, "ab" * 32)],
)
def test_a_line_break_after_the_end_is_no_part_of_a_pattern(kind: Any, right: str) -> None:
    """In Python's patterns `$` also matches before a line break at the end."""
    assert msgspec.convert(right, kind) == right
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(f"{right}\n", kind)


def test_patterns_of_messages_end_with_the_text() -> None:
    sources = Path(p2pnode.__file__).parent.rglob("*.py")
    assert not [path for path in sources if re.search(r'pattern=r?"[^"]*\$"', path.read_text())]
