"""Selecting, quantising, weighting: what is sent and what is left are what was there."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.quantise import BITS, quantise
from p2pnode.compression.residual import make_delta, record, take_levels, within
from p2pnode.compression.values import CHUNK
from p2pnode.compression.weights import MAX_UNITS, norm_squared

Units = npt.NDArray[np.int32]
units = hnp.arrays(np.int32, st.integers(1, 60), elements=st.integers(-MAX_UNITS, MAX_UNITS))
few_values = hnp.arrays(np.int32, st.integers(1, 60), elements=st.integers(-3, 3))


@given(units | few_values, st.sampled_from(BITS))
def test_levels_are_few_symmetric_and_near(values: Units, bits: int) -> None:
    levels = quantise(values, bits)
    assert len(np.unique(np.abs(levels))) <= 1 << (bits - 1)
    assert (levels[values > 0] >= 0).all()
    assert (levels[values < 0] <= 0).all()
    assert np.array_equal(quantise(-values, bits), -levels) or (values == 0).any()
    low, high = np.abs(values).min(), np.abs(values).max()
    assert (np.abs(levels) >= low).all()
    assert (np.abs(levels) <= high).all()


def heavy_tail(count: int, seed: int = 3) -> Units:
    """What selection keeps: nothing small, a long tail, and a few values far beyond it."""
    rng = np.random.default_rng(seed)
    tail = 2e5 + rng.exponential(1e5, count) * rng.lognormal(0, 0.5, count)
    tail[rng.integers(0, count, max(1, count // 2000))] *= 40
    return (tail * rng.choice([-1, 1], count)).astype(np.int32)


def squared_error(values: Units, levels: Units) -> float:
    return float(np.square((values - levels).astype(np.float64)).sum())


def least_error(values: Units, count: int) -> float:
    """The squared error of the best `count` levels (Lloyd–Max): the best way to part the ordered values, by trying."""
    ordered = np.sort(np.abs(values)).astype(np.float64) - np.abs(values).min()
    sums, squares = (np.concatenate(([0.0], np.cumsum(numbers))) for numbers in (ordered, ordered**2))
    number = np.maximum(np.subtract.outer(np.arange(len(sums)), np.arange(len(sums))).T, 1)
    error = np.subtract.outer(squares, squares).T - np.subtract.outer(sums, sums).T ** 2 / number
    error[np.tri(len(sums), k=-1, dtype=bool)] = np.inf
    best = error[0]
    for _ in range(count - 1):
        best = (best[:, None] + error).min(axis=0)
    return float(best[-1])


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("seed", range(3))
def test_the_error_is_within_a_tenth_of_the_best_levels(bits: int, seed: int) -> None:
    values = heavy_tail(500, seed)
    assert squared_error(values, quantise(values, bits)) <= 1.1 * least_error(values, 1 << (bits - 1)) + len(values) / 4


def test_more_bits_beat_fewer() -> None:
    values = heavy_tail(3 * CHUNK)
    errors = [squared_error(values, quantise(values, bits)) for bits in BITS]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-3 * errors[0]


def test_levels_follow_each_chunk() -> None:
    values = np.concatenate([np.full(CHUNK, 1000, np.int32), np.full(CHUNK, 7, np.int32)])
    assert np.array_equal(quantise(values, 2), values)


def test_other_numbers_of_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="5 bits"):
        quantise(np.ones(3, np.int32), 5)


@given(units | few_values, st.integers(0, 70), st.sampled_from(BITS))
def test_what_is_sent_and_what_is_left_are_what_was_there(values: Units, k: int, bits: int) -> None:
    """Weight 1 puts the levels themselves on the wire."""
    before = values.copy()
    delta, after = make_delta(values, k, bits, 1.0)
    together = after.astype(np.int64)
    together[delta.indices] += delta.values
    assert np.array_equal(together, before)
    assert np.array_equal(values, before), "the residual given is not changed"
    assert len(delta) <= k


@given(units | few_values, st.data(), st.sampled_from(BITS))
def test_a_cut_leaves_the_rest_whatever_the_places(values: Units, data: st.DataObject, bits: int) -> None:
    count = data.draw(st.integers(0, len(values)))
    places = np.sort(np.random.default_rng(count).permutation(len(values))[:count]).astype(np.uint32)
    taken = take_levels(values, places, bits)
    left = values.copy()
    taken.leave(left)
    delta = taken.delta(1.0)
    left[delta.indices] += delta.values
    assert np.array_equal(left, values)


@given(units, st.integers(1, 70), st.sampled_from([1 / 8, 2 / 3, 0.001]))
def test_weighting_changes_the_wire_and_not_the_residual(values: Units, k: int, weight: float) -> None:
    plain, left = make_delta(values, k, 4, 1.0)
    weighted, left_weighted = make_delta(values, k, 4, weight)
    assert np.array_equal(left, left_weighted)
    expected = dict(zip(plain.indices.tolist(), np.rint(plain.values * weight).astype(int).tolist(), strict=True))
    assert dict(zip(weighted.indices.tolist(), weighted.values.tolist(), strict=True)) == {
        place: value for place, value in expected.items() if value
    }


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="weight"):
        make_delta(np.ones(3, np.int32), 1, 2, weight)


@given(units, st.sampled_from([0.0, 0.5, 0.95, 0.98, 1.0]), st.integers(-(1 << 23), 1 << 23))
def test_recording_decays_exactly_and_adds_the_progress(values: Units, beta: float, step: int) -> None:
    factor = round(beta * 65536)
    progress = np.full(len(values), step * 2.0**-24, np.float32)
    expected = [
        max(-MAX_UNITS, min(MAX_UNITS, (1 if value >= 0 else -1) * (abs(value) * factor >> 16) + step))
        for value in values.tolist()
    ]
    assert record(values, progress, beta).tolist() == expected


def test_what_is_never_sent_fades_to_nothing() -> None:
    left = np.array([-900, 5, 40000], np.int32)
    for _ in range(600):
        left = record(left, np.zeros(3, np.float32), 0.98)
    assert left.tolist() == [0, 0, 0]


def test_progress_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        record(np.zeros(2, np.int32), np.array([0, np.nan], np.float32), 0.98)
    with pytest.raises(ValueError, match="shape"):
        record(np.zeros(2, np.int32), np.zeros(1, np.float32), 0.98)
    with pytest.raises(ValueError, match="beta"):
        record(np.zeros(2, np.int32), np.zeros(2, np.float32), 1.5)


@given(units, st.integers(1000, 1 << 31))
def test_a_delta_is_made_smaller_only_where_its_norm_reaches_the_bound(values: Units, bound: int) -> None:
    values = values[values != 0]
    delta = SparseDelta(60, np.arange(len(values), dtype=np.uint32), values)
    after = within(delta, bound)
    assert norm_squared(after.values) < bound * bound
    assert (after is delta) == (norm_squared(delta.values) < bound * bound)
