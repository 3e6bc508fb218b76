"""Codecs: exact, small, and unmoved by hostile bytes. The laws run over every codec in CODECS."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.deltas.bits import pack, unpack
from p2pnode.deltas.codec import CODECS, Codec, decode, encode
from p2pnode.deltas.delta import SparseDelta, dense_delta
from p2pnode.deltas.make import make_delta
from p2pnode.deltas.quantise import quantise
from p2pnode.deltas.sections import inflate, section, varint
from p2pnode.weights import MAX_UNITS

every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)


@st.composite
def deltas(draw: st.DrawFn) -> SparseDelta:
    """Of any density, with few or many different values, clustered or not."""
    size = draw(st.sampled_from([1, 7, 600, 5000, 1 << 20, 1 << 31]))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    span = min(size, draw(st.sampled_from([1, 50, 1300, 9000, 1 << 31])))
    count = draw(st.integers(0, min(span, 9000)))
    indices = np.sort(
        rng.choice(span, count, replace=False) if span < 1 << 21 else np.unique(rng.integers(0, span, count))
    )
    largest = draw(st.sampled_from([1, 3, 100, MAX_UNITS]))
    values = rng.integers(-largest, largest, len(indices), endpoint=True)
    return SparseDelta(size, indices.astype(np.uint32), values.astype(np.int32))


def example(size: int = 20_000, density: float = 0.01, bits: int = 2) -> SparseDelta:
    rng = np.random.default_rng(5)
    residual = (rng.standard_normal(size) * 30_000).astype(np.int32)
    return make_delta(residual, int(size * density), bits, 1 / 8)[0]


@every_codec
@given(delta=deltas())
def test_what_is_encoded_is_decoded(codec: Codec, delta: SparseDelta) -> None:
    assert codec.decode(codec.encode(delta), delta.size, len(delta)) == delta


@every_codec
def test_dense_deltas_cost_no_indices(codec: Codec) -> None:
    values = quantise((np.random.default_rng(1).standard_normal(100_000) * 1e5).astype(np.int32), 4)
    data = codec.encode(dense_delta(values))
    assert codec.decode(data, len(values), len(values)) == dense_delta(values)
    assert len(data) < 0.52 * len(values), "four bits and the levels"


@every_codec
def test_sparse_deltas_come_near_the_entropy(codec: Codec) -> None:
    delta = example(1_000_000, 0.005)
    p = len(delta) / delta.size
    bound = -np.log2(p) - (1 - p) / p * np.log2(1 - p) + 2
    assert 8 * len(codec.encode(delta)) / len(delta) < bound + 0.1


@every_codec
def test_clustered_changes_cost_less_than_scattered_ones(codec: Codec) -> None:
    rng = np.random.default_rng(4)
    values = rng.choice(np.array([5, -5, 9, -9], np.int32), 5000)
    scattered = np.sort(rng.choice(1_000_000, 5000, replace=False))
    clustered = np.sort(rng.choice(9000, 5000, replace=False)) + 70_000 * np.repeat([1, 5], 2500)
    sizes = [len(codec.encode(SparseDelta(1_000_000, at.astype(np.uint32), values))) for at in (scattered, clustered)]
    assert sizes[1] < sizes[0] / 2


@every_codec
def test_a_delta_for_another_model_or_of_too_many_entries_is_refused(codec: Codec) -> None:
    delta = example()
    data = codec.encode(delta)
    with pytest.raises(ValueError, match="20000 coordinates; the model has 20001"):
        codec.decode(data, delta.size + 1, len(delta))
    with pytest.raises(ValueError, match="at most 199"):
        codec.decode(data, delta.size, 199)


@every_codec
def test_other_versions_and_bytes_too_few_or_many_are_refused(codec: Codec) -> None:
    delta = example()
    data = codec.encode(delta)
    with pytest.raises(ValueError, match="version 9"):
        codec.decode(b"\x09" + data[1:], delta.size, len(delta))
    with pytest.raises(ValueError, match="1 bytes too many"):
        codec.decode(data + b"\0", delta.size, len(delta))
    for length in range(0, len(data), 7):
        with pytest.raises(ValueError):  # noqa: PT011
            codec.decode(data[:length], delta.size, len(delta))


@every_codec
@pytest.mark.parametrize("seed", range(4))
def test_hostile_bytes_never_crash_and_never_pass_a_bound(codec: Codec, seed: int) -> None:
    """25,000 mutations a seed: a bounded, well-formed delta or ValueError, nothing else."""
    rng = random.Random(seed)
    values = np.random.default_rng(seed).integers(-50, 50, 60).astype(np.int32)
    originals = [example(2000, 0.02), example(3000, 0.3, 4), dense_delta(quantise(values, 4)), example(2000, 0.01, 8)]
    samples = [(codec.encode(delta), delta.size, len(delta)) for delta in originals]
    survived = 0
    for _ in range(25_000):
        data, size, most = rng.choice(samples)
        try:
            delta = codec.decode(mutated(data, rng), size, most)
        except ValueError:
            continue
        survived += 1
        assert len(delta) <= most
        assert delta.size == size
    assert survived, "some mutations only change values"


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(len(out))
        action = rng.randrange(4)
        if action == 0:
            out[place] = rng.randrange(256)
        elif action == 1:
            out[place] ^= 1 << rng.randrange(8)
        elif action == 2:
            del out[place : place + rng.randrange(1, 9)]
        else:
            out[place:place] = rng.randbytes(rng.randrange(1, 9))
        if not out:
            return b""
    return bytes(out)


def test_a_decompression_bomb_is_refused_before_it_unfolds() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 28))
    header = encode(example(1 << 20, 0.001))[:10]
    honest = varint(2) + varint(2) + bytes(2) + varint(0) + varint(0)
    lying = header + varint(2) + varint(2) + b"\x09\x09" + varint(1500) + varint(min(len(bomb), 1499)) + bomb
    tracemalloc.start()
    for data in (lying, header + varint(1 << 28) + varint(len(bomb)) + bomb, header + honest + bomb):
        with pytest.raises(ValueError):  # noqa: PT011
            decode(data, 1 << 20, 1 << 20)
    with pytest.raises(ValueError, match="declare"):
        inflate(bomb, 1000)
    with pytest.raises(ValueError, match="declare"):
        inflate(unsized, 1000)
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()


def test_a_header_alone_makes_nothing_large() -> None:
    """The header may promise 2³¹ entries; memory follows the bytes that are there."""
    data = b"\x01\x01" + (1 << 31).to_bytes(4, "little") * 2
    tracemalloc.start()
    with pytest.raises(ValueError, match="at most"):
        decode(data, 1 << 31, 1000)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("widths", "lows", "unary", "why"),
    [
        ([0], b"", 0b101, ""),  # gaps 0 and 1: indices 0 and 2
        ([0], b"", 0b1, "1 gaps for 2 entries"),
        ([0], b"", 0b111, "3 gaps for 2 entries"),
        ([0], b"", 0b110000, "beyond"),
        ([32], bytes(8), 0b11, "31 bits"),
        ([31], bytes(8), 0b101, "beyond"),
        ([3], b"\x3f", 0b11, "beyond"),
        ([0, 0], b"", 0b11, "1 to 1 are due"),
        ([1], b"", 0b11, "1 to 1 are due"),
        ([0], b"", 0b11 << 7, "0 to 1"),
    ],
)
def test_indices_are_read_without_trust(widths: list[int], lows: bytes, unary: int, why: str) -> None:
    """Two entries of five coordinates, written by hand."""
    levels = bytes([0]) + section((7).to_bytes(4, "little")) + section(b"\0") + section(b"")
    gaps = section(unary.to_bytes((unary.bit_length() + 7) // 8, "little"))
    data = b"\x01\0\x05\0\0\0\x02\0\0\0" + section(bytes(widths)) + section(lows) + gaps + levels
    if not why:
        assert decode(data, 5, 5).indices.tolist() == [0, 2]
        return
    with pytest.raises(ValueError, match=why):
        decode(data, 5, 5)


def test_levels_beyond_the_grid_are_refused() -> None:
    delta = SparseDelta(10, np.array([3], np.uint32), np.array([MAX_UNITS], np.int32))
    data = encode(delta).replace(MAX_UNITS.to_bytes(4, "little"), (MAX_UNITS + 1).to_bytes(4, "little"))
    with pytest.raises(ValueError, match="beyond"):
        decode(data, 10, 1)


@given(st.lists(st.integers(0, (1 << 32) - 1), max_size=40), st.integers(0, 32))
def test_packing_keeps_the_low_bits(numbers: list[int], width: int) -> None:
    packed = pack(np.array(numbers, np.uint32), width)
    assert len(packed) == (len(numbers) * width + 7) // 8
    assert unpack(packed, len(numbers), width).tolist() == [number & ((1 << width) - 1) for number in numbers]


def test_packing_many_numbers_goes_block_by_block() -> None:
    numbers = np.random.default_rng(2).integers(0, 1 << 13, 200_001).astype(np.uint32)
    assert np.array_equal(unpack(pack(numbers, 13), len(numbers), 13), numbers)


@given(st.binary(max_size=200))
def test_sections_are_never_longer_than_raw_and_a_few_bytes(raw: bytes) -> None:
    assert len(section(raw)) <= len(raw) + 4


@pytest.mark.parametrize(
    ("indices", "values", "why"),
    [
        ([3, 3], [1, 1], "increase"),
        ([4, 3], [1, 1], "increase"),
        ([10], [1], "beyond"),
        ([1], [1, 2], "indices"),
        ([1], [MAX_UNITS + 1], "value"),
        ([1], [-(1 << 31)], "value"),
    ],
)
def test_a_delta_is_well_formed_or_not_made(indices: list[int], values: list[int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        SparseDelta(10, np.array(indices, np.uint32), np.array(values, np.int32))
