"""Sketches tell different vectors apart and are not moved by rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.compression.weights import WeightLayout
from p2pnode.similarity.sketch import MOST_VALUES, distance, shared_weights, sketch

LAYOUT = WeightLayout((("first.weight", (64, 32)), ("first.bias", (64,))))

FIRST = [0.10761556, -0.01512804, 0.27279991]


def vector(seed: int, count: int = 500, offset: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(offset, 1.0, count)


@given(st.integers(0, 1000), st.integers(1, 3000), st.floats(-50, 50), st.floats(1e-6, 1e6))
@settings(max_examples=60, deadline=None)
def test_rounding_to_half_precision_is_no_difference(seed: int, count: int, offset: float, scale: float) -> None:
    exact = vector(seed, count, offset) * scale
    rounded = exact * (1 + np.random.default_rng(seed + 1).uniform(-5e-4, 5e-4, count))
    assert distance(sketch(exact), sketch(rounded)) < 0.02


@pytest.mark.parametrize("share", [0.1, 0.3, 1.0])
def test_the_distance_is_about_that_of_the_vectors(share: float) -> None:
    for seed in range(20):
        one = vector(seed, 4000)
        other = one + share * vector(seed + 100, 4000)
        assert distance(sketch(one), sketch(other)) == pytest.approx(share / np.hypot(1, share), rel=0.5)


def test_an_offset_is_a_difference() -> None:
    assert distance(sketch(vector(1)), sketch(vector(1) + 0.2)) > 0.1
    assert distance(sketch(np.zeros(8)), sketch(np.zeros(8))) == 0.0
    assert distance(sketch(np.zeros(8)), sketch(np.ones(8))) > 1
    assert distance(sketch(np.array([2.3])), sketch(np.array([2.3]))) == 0.0, "a single number"
    assert distance(sketch(np.array([2.3])), sketch(np.array([2.5]))) > 0.1


def test_what_cannot_be_compared_is_empty() -> None:
    assert sketch(np.array([1.0, np.nan])) == ()
    assert sketch(np.empty(0)) == ()
    assert distance((), ()) == np.inf and distance(sketch(vector(1)), ()) == np.inf
    assert not distance((0.0, 1.0, np.nan), (0.0, 1.0, 0.0)) <= 1


def test_a_huge_vector_is_looked_at_in_part() -> None:
    huge = np.zeros(MOST_VALUES * 2 + 5, np.float32)
    assert len(sketch(huge)) == 34


def test_shared_weights_are_the_same_on_every_machine() -> None:
    """These numbers must never change, or nodes of different versions would refuse each other."""
    weights = shared_weights(LAYOUT, "words")
    assert weights[:3].tolist() == pytest.approx(FIRST, abs=1e-6)
    assert weights[: 64 * 32].std() == pytest.approx(1 / np.sqrt(32), rel=0.05)
    assert not np.array_equal(weights, shared_weights(LAYOUT, "other words"))
