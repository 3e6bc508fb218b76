"""Heads: an algebra of maxima, in few bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.merging.deltaset.entry import Chain
from p2pnode.merging.deltaset.heads import covered_by, decode_heads, encode_heads, head_mark, merge, missing, total
from p2pnode.wire.ids import Identity
from tests.merging.deltaset.chains import AUTHORS, name

chains = st.builds(Chain, st.sampled_from([author.peer_id for author in AUTHORS]), st.integers(0, 3))
heads = st.dictionaries(chains, st.integers(1, 9), max_size=8)

H = dict[Chain, int]


@given(heads, heads, heads)
def test_merging_is_a_maximum(a: H, b: H, c: H) -> None:
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c)) == merge(a, b, c)
    assert merge(a, a) == a
    assert merge(a, {}) == a


@given(heads, heads)
def test_what_is_missing_is_what_merging_adds(mine: H, theirs: H) -> None:
    spans = missing(mine, theirs)
    after = {**mine, **{span.chain: span.last for span in spans}}
    assert after == merge(mine, theirs)
    assert all(span.first == mine.get(span.chain, 0) + 1 <= span.last for span in spans)
    assert sum(span.last - span.first + 1 for span in spans) == total(after) - total(mine)


@given(heads)
def test_what_is_encoded_is_decoded_and_order_leaves_no_trace(one: H) -> None:
    data = encode_heads(one)
    assert decode_heads(data) == one
    assert encode_heads(dict(reversed(one.items()))) == data
    assert head_mark(one).entries == total(one)


@given(heads, heads)
def test_marks_tell_heads_apart(one: H, other: H) -> None:
    assert (head_mark(one) == head_mark(other)) == (one == other)


def test_sixteen_authors_fit_well_into_a_kibibyte() -> None:
    crowd = {Chain(Identity(bytes([n]) * 32).peer_id, 3): 1_000_000 + n for n in range(1, 17)}
    assert len(encode_heads(crowd)) <= 16 * 36 + 1
    assert len(head_mark(crowd).digest) == 16


def test_covered_is_what_enough_others_have() -> None:
    own = {name(0): 10}
    others = [{name(0): 12}, {name(0): 4}, {}]
    assert [covered_by(own, name(0), others, times) for times in (1, 2, 3, 4)] == [10, 4, 0, 0]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x02" + encode_heads({name(0): 1})[1:] * 2,
        b"\x01" + bytes(32) + b"\x00\x00",
        b"\x01" + bytes(32) + b"\x80\x80\x01\x05",
        encode_heads({name(0): 1}) + b"\0",
        b"\xff\xff\xff\xff\x0f",
        b"\xff" * 9,
    ],
)
def test_malformed_heads_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_heads(data)


def test_random_bytes_are_refused_or_are_heads() -> None:
    rng = np.random.default_rng(0)
    whole = encode_heads({name(author, life): 5 for author in range(4) for life in range(3)})
    for _ in range(20_000):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 2):
            data[place] = rng.integers(256)
        try:
            decoded = decode_heads(bytes(data[: rng.integers(1, len(data) + 1)]), 12)
        except ValueError:
            continue
        assert len(decoded) <= 12
