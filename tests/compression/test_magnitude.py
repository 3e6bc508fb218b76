"""Selecting: exactly the largest, whatever the sample says."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from p2pnode.compression.selectors.magnitude import largest
from p2pnode.compression.weights import MAX_UNITS, Floats, Units

units = hnp.arrays(np.int32, st.integers(0, 60), elements=st.integers(-MAX_UNITS, MAX_UNITS))
few_values = hnp.arrays(np.int32, st.integers(1, 60), elements=st.integers(-3, 3))
scores = hnp.arrays(np.float32, st.integers(1, 60), elements=st.floats(-9, 9, width=32))


def by_sorting(values: npt.NDArray[np.number], k: int) -> list[int]:
    order = np.argsort(-np.abs(values.astype(np.float64)), kind="stable")[: max(k, 0)]
    return sorted(order[values[order] != 0].tolist())


@given(units | few_values | scores, st.integers(-1, 70))
def test_selection_takes_the_k_largest_and_ties_by_index(values: Units | Floats, k: int) -> None:
    chosen = largest(values, k)
    assert chosen.tolist() == by_sorting(values, k)
    assert chosen.dtype == np.uint32


def large(name: str) -> Units:
    """More than the sample holds."""
    rng = np.random.default_rng(7)
    size = 400_003
    if name == "heavy tail":
        return (rng.standard_t(3, size) * 9000).astype(np.int32)
    if name == "mostly zero":
        return np.where(rng.random(size) < 0.004, rng.integers(-9, 9, size), 0).astype(np.int32)
    if name == "ties":
        return rng.integers(-2, 3, size).astype(np.int32)
    if name == "one block":  # all that is large lies together, where the sample hardly looks
        return np.where(np.arange(size) // 3000 == 50, 5000 + np.arange(size) % 7, 1).astype(np.int32)
    hidden = np.ones(size, np.int32)  # the sample sees nothing of it
    hidden[1::3] = 900
    return hidden


@pytest.mark.parametrize("name", ["heavy tail", "mostly zero", "ties", "one block", "hidden from the sample"])
@pytest.mark.parametrize("k", [1, 300, 4000, 200_000, 500_000])
def test_a_misleading_sample_changes_nothing(name: str, k: int) -> None:
    values = large(name)
    expected = by_sorting(values, k)
    assert largest(values, k).tolist() == expected


def test_the_most_negative_number_counts_as_large() -> None:
    assert largest(np.array([5, -(1 << 31), 7], np.int32), 1).tolist() == [1]
