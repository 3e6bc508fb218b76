"""Sign entries: exact on the grid, bounded, and refused when they are anything else."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.compression.codec import with_checksum
from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.sections import varint
from p2pnode.compression.signs import MAX_TENSORS, decode_signs, encode_signs, take_signs
from p2pnode.compression.weights import MAX_UNITS, Units

LAYERS = (7, 1, 40, 13)
SIZE = sum(LAYERS)


def residual(seed: int, size: int = SIZE, largest: int = 1 << 20) -> Units:
    return np.random.Generator(np.random.PCG64(seed)).integers(-largest, largest, size, np.int32, endpoint=True)


@given(st.integers(0, 1 << 32), st.sampled_from([0, 1, 1000, MAX_UNITS]))
def test_levels_and_what_is_left_are_what_was_there(seed: int, largest: int) -> None:
    before = residual(seed, largest=largest)
    after, cut = before.copy(), take_signs(before, LAYERS)
    cut.leave(after)
    assert np.array_equal(after.astype(np.int64) + cut.delta(1.0).values, before)


@given(st.integers(0, 1 << 32), st.floats(1e-6, 4.0))
def test_what_is_sent_arrives(seed: int, weight: float) -> None:
    delta = take_signs(residual(seed), LAYERS).delta(weight)
    data = encode_signs(delta, LAYERS)
    assert decode_signs(data, SIZE) == delta
    assert len(data) <= -(-SIZE // 8) + 4 * 8 + 8


def test_a_bit_a_coordinate() -> None:
    size = 100_000
    data = encode_signs(take_signs(residual(1, size), (size,)).delta(0.5), (size,))
    assert len(data) < size / 8 + 20


def test_the_scale_is_the_mean_magnitude_of_each_layer() -> None:
    before = residual(3)
    values = take_signs(before, LAYERS).delta(1.0).values
    for start, count in zip(np.cumsum([0, *LAYERS[:-1]]), LAYERS, strict=True):
        layer = slice(start, start + count)
        assert set(np.abs(values[layer])) == {int(np.abs(before[layer].astype(np.int64)).sum()) // count}
        assert np.array_equal(values[layer] < 0, before[layer] < 0)


def test_other_deltas_cannot_be_written() -> None:
    some = SparseDelta(SIZE, np.arange(5, dtype=np.uint32), np.ones(5, np.int32))
    uneven = SparseDelta(SIZE, np.arange(SIZE, dtype=np.uint32), np.arange(SIZE, dtype=np.int32))
    for delta in (some, uneven):
        with pytest.raises(ValueError, match=r"every coordinate|several magnitudes"):
            encode_signs(delta, LAYERS)


def payload(size: int, tensors: list[tuple[int, int]], bits: bytes) -> bytes:
    parts = b"".join(varint(length) + varint(scale) for length, scale in tensors)
    return with_checksum(b"\x03" + varint(size) + varint(len(tensors)) + parts + bits)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (payload(20, [(20, 5)], b"\0\0\0"), "the model has 12"),
        (payload(12, [], b"\0\0"), "0 tensors"),
        (payload(12, [(1, 5)] * 13, b"\0\0"), "13 tensors"),
        (payload(12, [(6, 5), (7, 5)], b"\0\0"), "add up"),
        (payload(12, [(12, 5), (0, 5)], b"\0\0"), "add up"),
        (payload(12, [(12, MAX_UNITS + 1)], b"\0\0"), "scale beyond"),
        (payload(12, [(12, 5)], b"\0"), "truncated"),
        (payload(12, [(12, 5)], b"\0\0\0"), "too many"),
        (payload(12, [(12, 5)], b"\0\x01"), "beyond the last"),
        (b"", "not a payload"),
        (b"\x03", "checksum"),
        (b"\x02" + payload(12, [(12, 5)], b"\0\0")[1:], "not a payload"),
    ],
)
def test_hostile_bytes_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode_signs(data, 12)


def test_many_tensors_are_refused_before_they_are_read() -> None:
    data = with_checksum(b"\x03" + varint(1 << 20) + varint(MAX_TENSORS + 1))
    with pytest.raises(ValueError, match="tensors"):
        decode_signs(data, 1 << 20)


def test_every_flipped_bit_and_lost_byte_is_refused() -> None:
    data = encode_signs(take_signs(residual(5), LAYERS).delta(0.5), LAYERS)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"checksum|not a payload"):
            decode_signs(bytes(flipped), SIZE)
    for length in range(len(data)):
        with pytest.raises(ValueError, match=r"checksum|not a payload"):
            decode_signs(data[:length], SIZE)


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_bytes_from_nowhere_give_a_delta_or_a_reason(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert decode_signs(with_checksum(b"\x03" + body), SIZE).size == SIZE
