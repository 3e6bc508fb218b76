"""Budgets of layers: each is heard, none is heard twice, and nothing larger is left out for no reason."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.compression.selectors.layer_budget import largest_by_layer
from p2pnode.compression.selectors.magnitude import largest


def units(layers: list[int], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    scales = [10 ** rng.integers(1, 7) for _ in layers]
    parts = [rng.normal(0, scale, size) for size, scale in zip(layers, scales, strict=True)]
    return np.concatenate(parts).astype(np.int32)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.integers(0, 400), st.floats(0, 1), st.integers(0, 99))
def test_places_increase_and_are_about_k(layers: list[int], k: int, share: float, seed: int) -> None:
    values = units(layers, seed)
    places = largest_by_layer(values, k, layers, share)
    assert (np.diff(places.astype(np.int64)) > 0).all()
    assert (values[places] != 0).all()
    assert min(k, int(np.count_nonzero(values))) - len(layers) <= len(places) <= k + len(layers)


def test_without_a_share_it_is_plain_magnitude_and_with_all_of_it_each_layer_has_its_part() -> None:
    layers = [1000, 1000, 2000]
    values = np.concatenate([np.full(1000, 3), np.full(1000, 200), np.arange(1, 2001)]).astype(np.int32)
    assert np.array_equal(largest_by_layer(values, 400, layers, 0.0), largest(values, 400))
    places = largest_by_layer(values, 400, layers, 1.0)
    assert np.histogram(places, [0, 1000, 2000, 4000])[0].tolist() == [100, 100, 200]
    assert places[-1] == 3999


def test_layers_of_another_model_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="30 coordinates"):
        largest_by_layer(np.ones(20, np.int32), 3, [30], 0.5)
