"""What becomes of steps done while entries came in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.compression.weights import MAX_UNITS, UNIT, Floats, to_units
from p2pnode.merging.deltaset.correction import WINDOW, Blocks, Correction

TAU = 3.0
A_NEW: Floats = np.array([0.25, -0.5, 0.0, 1.0, 0.125], np.float32)
START: Floats = np.full(5, 0.5, np.float32)


def in_blocks(weights: Floats) -> Blocks:
    def give() -> Iterator[tuple[slice, Floats]]:
        for block in (slice(0, 3), slice(3, 5)):
            yield block, weights[block].copy()

    return give


def corrected(correction: Correction, x: Floats) -> tuple[Floats, Floats, np.ndarray]:
    """x, start and residual afterwards."""
    now, start, residual = x.copy(), START.copy(), np.full(5, 7, np.int32)
    correction.correct(start, now, residual, in_blocks(A_NEW))
    return now, start, residual


def at(distance: float) -> Floats:
    """Weights in training so far from A_NEW."""
    x = A_NEW.copy()
    x[0] += np.float32(distance)
    return x


def after(*distances: float, tau: float = TAU) -> Correction:
    correction = Correction(tau)
    for distance in distances:
        corrected(correction, at(distance))
    correction.kept = correction.restarted = 0
    return correction


def test_within_the_threshold_steps_are_kept_on_top_of_the_new_weights() -> None:
    correction, x = after(1.0), at(2.9)
    now, start, residual = corrected(correction, x)
    assert np.allclose(now, A_NEW + (x - START))
    assert np.array_equal(start, A_NEW)
    assert (residual == 7).all()
    assert (correction.kept, correction.restarted) == (1, 0)


def test_beyond_the_threshold_they_go_into_the_residual() -> None:
    correction, x = after(1.0), at(3.1)
    now, start, residual = corrected(correction, x)
    assert np.array_equal(now, A_NEW)
    assert np.array_equal(start, A_NEW)
    assert np.array_equal(residual, 7 + to_units(x - START))
    assert (correction.kept, correction.restarted) == (0, 1)


@given(st.lists(st.floats(0.001, 50.0), min_size=1, max_size=40), st.floats(0.5, 5.0))
def test_no_step_is_lost(distances: list[float], tau: float) -> None:
    """What a round learned is in x − start or in the residual, whatever was decided."""
    correction = Correction(tau)
    for distance in distances:
        x = at(distance)
        now, start, residual = corrected(correction, x)
        found = (now - start) + (residual - 7) * np.float32(UNIT)
        assert np.allclose(found, x - START, atol=1e-4)
    assert correction.kept + correction.restarted == len(distances)


def test_the_first_is_kept_whatever_its_distance() -> None:
    correction = Correction(TAU)
    corrected(correction, at(1e6))
    assert correction.kept == 1


def test_the_median_is_of_the_last_distances_only() -> None:
    correction = after(*[1.0] * WINDOW)
    corrected(correction, at(5.0))
    assert correction.restarted == 1
    used_to_it = after(*[1.0] * WINDOW, *[2.9] * WINDOW)
    corrected(used_to_it, at(5.0))
    assert used_to_it.kept == 1


def test_the_residual_stays_on_the_grid() -> None:
    correction = after(1.0)
    now, start, residual = at(5.0), START.copy(), np.full(5, MAX_UNITS, np.int32)
    now[3] = 60.0
    correction.correct(start, now, residual, in_blocks(A_NEW))
    assert correction.restarted == 1
    assert residual.max() == MAX_UNITS


def test_weights_that_are_not_numbers_change_nothing() -> None:
    correction = after(1.0)
    x, start, residual = at(1.0), START.copy(), np.zeros(5, np.int32)
    x[4] = np.nan
    with pytest.raises(ValueError, match="finite"):
        correction.correct(start, x, residual, in_blocks(A_NEW))
    assert np.array_equal(start, START)
    assert not residual.any()
    assert (correction.kept, correction.restarted) == (0, 0)
