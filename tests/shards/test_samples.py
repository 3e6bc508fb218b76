"""A shard's samples as bytes: there and back exactly, and nothing hostile gets through."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from p2pnode.shards.rows import listed
from p2pnode.shards.samples import MAGIC, MAX_SHARD_BYTES, count_samples, decode_samples, encode_samples, sample_layout
from p2pnode.shards.shard import columns_id, cut_shards

KINDS: list[Any] = [np.uint8, np.int16, np.int64, np.float16, np.float32, np.float64, np.bool_, np.dtype(">f4")]


@st.composite
def some_columns(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Images, tokens, labels, anything: a few columns of equal length."""
    count, names = draw(st.integers(1, 6)), draw(st.sets(st.text(min_size=1, max_size=8), min_size=1, max_size=4))
    shapes = st.lists(st.integers(0, 4), max_size=3)
    return {
        name: draw(arrays.arrays(draw(st.sampled_from(KINDS)), (count, *draw(shapes)), fill=st.nothing()))
        for name in sorted(names)
    }


@given(some_columns())
def test_what_is_encoded_comes_back_exactly(columns):
    data = encode_samples(columns)
    back = decode_samples(data, sample_layout(columns), columns_id(columns))
    assert set(back) == set(columns) and count_samples(data) == len(next(iter(columns.values())))
    for name, column in columns.items():
        assert back[name].shape == column.shape
        assert back[name].tobytes() == column.astype(column.dtype.newbyteorder("<")).tobytes()
    assert columns_id(back) == columns_id(columns)


def test_a_shard_of_a_data_set_has_the_id_of_its_samples():
    data = {"x": np.arange(60, dtype=np.uint8).reshape(20, 3), "y": np.arange(20)}
    for shard in cut_shards(data, seed=1, size=5):
        assert columns_id({name: column[listed(shard.indices)] for name, column in data.items()}) == shard.id


COLUMNS = {"x": np.arange(24, dtype=np.uint8).reshape(4, 2, 3), "y": np.arange(4)}
LAYOUT, ID, DATA = sample_layout(COLUMNS), columns_id(COLUMNS), encode_samples(COLUMNS)


def header(*columns: tuple[str, str, tuple[int, ...]], content: bytes = b"") -> bytes:
    head = msgspec.msgpack.encode(columns)
    return MAGIC + len(head).to_bytes(4, "big") + head + content


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not the samples"),
        (MAGIC, "not the samples"),
        (MAGIC + b"\xff\xff\xff\xff", "cut off or too long"),
        (DATA[:-1], "announced"),
        (DATA + b"x", "announced"),
        (DATA[:-1] + b"x", "not that of the shard"),
        (bytes(MAX_SHARD_BYTES + 1), "allowed"),
        (header(("x", "|u1", (1,)), content=b"x"), "another shape"),
        (header(("x", "|u1", (1 << 22, 1 << 22, 1 << 22))), "announced"),
        (header(("x", "|O", (1,)), content=bytes(8)), "does not travel"),
        (header(("x", "<f4", (1,)), ("x", "<f4", (1,)), content=bytes(8)), "twice"),
        (header(("x", "<f4", (1,)), ("y", "<f4", (2,)), content=bytes(12)), "different length"),
        (header(("x", "<f4", (0,))), "without samples"),
        (header(("x", "<f4", ())), "malformed"),
        (header(("x", "<f4", (-1,))), "malformed"),
        (MAGIC + (1).to_bytes(4, "big") + b"\xc1", "malformed"),
        (encode_samples({**COLUMNS, "y": np.arange(4, dtype=np.int32)}), "another shape"),
        (encode_samples({"x": COLUMNS["x"]}), "another shape"),
    ],
)
def test_hostile_bytes_are_refused_with_a_reason(data, reason):
    with pytest.raises(ValueError, match=reason):
        decode_samples(data, LAYOUT, ID)


@given(st.binary(max_size=200), st.integers(0, len(DATA)))
def test_whatever_the_bytes_are_they_are_that_shard_or_refused(junk, place):
    data = DATA[:place] + junk
    try:
        columns = decode_samples(data, LAYOUT, ID)
    except ValueError:
        return
    assert columns_id(columns) == ID


def test_what_cannot_travel_is_not_encoded():
    with pytest.raises(ValueError, match="only numbers travel"):
        encode_samples({"x": np.array(["word"])})
    with pytest.raises(ValueError, match="allowed"):
        encode_samples({"x": np.zeros(MAX_SHARD_BYTES + 1, np.uint8)})
