"""The delta codec is exact and compact. test_hostile_deltas.py shows what it does with malformed bytes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.compression.bits import pack_bits, running_sum, true_indices, unpack_bits
from p2pnode.compression.codec import decode_delta, encode_delta
from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.quantise import quantise
from p2pnode.compression.residual import make_delta
from p2pnode.compression.sections import section
from p2pnode.compression.values import CHUNK, WIDE_CHUNK
from p2pnode.compression.weights import MAX_UNITS
from tests.compression.dense import dense_delta


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


@given(delta=deltas())
def test_what_is_encoded_is_decoded(delta: SparseDelta) -> None:
    assert decode_delta(encode_delta(delta), delta.size, len(delta)) == delta


def test_dense_deltas_cost_no_indices() -> None:
    values = quantise((np.random.default_rng(1).standard_normal(100_000) * 1e5).astype(np.int32), 4)
    data = encode_delta(dense_delta(values))
    assert decode_delta(data, len(values), len(values)) == dense_delta(values)
    assert len(data) < 0.52 * len(values), "four bits and the levels"


def index_bound(size: int, count: int) -> float:
    """Bits an entry that any code takes, on average, for `count` of `size` places without pattern."""
    choices = math.lgamma(size + 1) - math.lgamma(count + 1) - math.lgamma(size - count + 1)
    return choices / math.log(2) / count


def entropy(values: np.ndarray) -> float:
    """Bits a value, each drawn by itself."""
    share = np.unique(values, return_counts=True)[1] / len(values)
    return float(-(share * np.log2(share)).sum())


@pytest.mark.parametrize("density", [0.001, 0.01, 0.04, 0.2])
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_sparse_deltas_come_near_the_entropy(density: float, bits: int) -> None:
    delta = example(1_000_000, density, bits)
    bound = index_bound(delta.size, len(delta)) + entropy(delta.values[:CHUNK])
    spent = 8 * len(encode_delta(delta)) / len(delta)
    assert spent < 1.03 * bound + 420 / len(delta), "fifty bytes for headers and the levels"


def test_four_bits_of_one_entry_in_a_hundred_cost_twelve_and_a_half_all_in() -> None:
    delta = example(1_000_000, 0.01, 4)
    assert 8 * len(encode_delta(delta)) <= 12.5 * len(delta)


def test_tiny_models_do_not_drown_in_headers() -> None:
    delta = example(10_000, 0.01, 4)
    bound = len(delta) * (index_bound(delta.size, len(delta)) + 4)
    assert 8 * len(encode_delta(delta)) < bound + 8 * 36, "18 bytes of levels, 4 of checksum, the rest is headers"


@pytest.mark.parametrize("count", [CHUNK, CHUNK + 1, WIDE_CHUNK + 1])
@pytest.mark.parametrize("levels", [1, 2, 32, 33, 128, 129])
def test_any_number_of_levels_is_exact(count: int, levels: int) -> None:
    rng = np.random.default_rng(levels)
    values = rng.integers(1, levels, count, endpoint=True) * rng.choice([-1, 1], count)
    delta = dense_delta((values * 1000).astype(np.int32))
    assert decode_delta(encode_delta(delta), count, count) == delta


def test_clustered_changes_cost_less_than_scattered_ones() -> None:
    rng = np.random.default_rng(4)
    values = rng.choice(np.array([5, -5, 9, -9], np.int32), 5000)
    scattered = np.sort(rng.choice(1_000_000, 5000, replace=False))
    clustered = np.sort(rng.choice(9000, 5000, replace=False)) + 70_000 * np.repeat([1, 5], 2500)
    sizes = [len(encode_delta(SparseDelta(1_000_000, at.astype(np.uint32), values))) for at in (scattered, clustered)]
    assert sizes[1] < sizes[0] / 2


@given(st.lists(st.integers(0, (1 << 32) - 1), max_size=40), st.integers(0, 32))
def test_packing_keeps_the_low_bits(numbers: list[int], width: int) -> None:
    packed = pack_bits(np.array(numbers, np.uint32), width)
    assert len(packed) == (len(numbers) * width + 7) // 8
    assert unpack_bits(packed, len(numbers), width).tolist() == [number & ((1 << width) - 1) for number in numbers]


def test_packing_many_numbers_goes_block_by_block() -> None:
    numbers = np.random.default_rng(2).integers(0, 1 << 13, 200_001).astype(np.uint32)
    assert np.array_equal(unpack_bits(pack_bits(numbers, 13), len(numbers), 13), numbers)


@pytest.mark.parametrize("count", [0, 1, 9000, 32_770, 100_001])
def test_running_sums_and_places_are_those_of_numpy(count: int) -> None:
    numbers = np.random.default_rng(count).integers(0, 1 << 32, count).astype(np.uint32)
    assert np.array_equal(running_sum(numbers), np.cumsum(numbers, dtype=np.uint32))
    mask = np.zeros(-(-count // 8) * 8, bool)
    mask[:count] = numbers % 13 == 0
    assert np.array_equal(true_indices(mask), np.flatnonzero(mask))


@given(st.binary(max_size=200))
def test_sections_are_never_longer_than_raw_and_a_few_bytes(raw: bytes) -> None:
    assert len(section(raw)) <= len(raw) + 4


@pytest.mark.parametrize(
    ("indices", "values", "reason"),
    [
        ([3, 3], [1, 1], "increase"),
        ([4, 3], [1, 1], "increase"),
        ([10], [1], "beyond"),
        ([1], [1, 2], "indices"),
        ([1], [MAX_UNITS + 1], "value"),
        ([1], [-(1 << 31)], "value"),
    ],
)
def test_a_delta_is_well_formed_or_not_made(indices: list[int], values: list[int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        SparseDelta(10, np.array(indices, np.uint32), np.array(values, np.int32))
