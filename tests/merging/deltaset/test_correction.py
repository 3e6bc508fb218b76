"""Entries let in during a round: its progress stays what it is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.compression.weights import Floats
from p2pnode.merging.deltaset.correction import let_in

A_NEW: Floats = np.array([0.25, -0.5, 0.0, 1.0, 0.125], np.float32)
START: Floats = np.full(5, 0.5, np.float32)


def in_blocks(weights: Floats) -> Iterator[tuple[slice, Floats]]:
    for block in (slice(0, 3), slice(3, 5)):
        yield block, weights[block].copy()


@given(st.lists(st.floats(-50.0, 50.0), min_size=5, max_size=5))
def test_no_step_is_lost(values: list[float]) -> None:
    """However far the steps went, they are on top of the new weights."""
    x, start = np.array(values, np.float32), START.copy()
    progress = x - start
    let_in(start, x, in_blocks(A_NEW))
    assert np.array_equal(start, A_NEW)
    assert np.allclose(x - start, progress, atol=1e-4)


def test_weights_that_are_not_numbers_change_nothing() -> None:
    x, start = A_NEW.copy(), START.copy()
    x[4] = np.nan
    with pytest.raises(ValueError, match="finite"):
        let_in(start, x, in_blocks(A_NEW))
    assert np.array_equal(start, START)
    assert np.array_equal(x[:4], A_NEW[:4])
