"""The learning rate of a run with a planned length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.merging.schedule import LAST_RATE, planned_rate


def test_a_run_without_a_planned_end_keeps_its_rate() -> None:
    assert planned_rate(10**9, 0) == 1.0


@pytest.mark.parametrize(("planned", "falls_from"), [(500, 250), (1000, 750), (4000, 3000)])
def test_it_falls_over_the_last_half_or_quarter(planned: int, falls_from: int) -> None:
    assert planned_rate(falls_from, planned) == 1.0
    assert planned_rate(falls_from + 1, planned) < 1.0
    assert planned_rate((falls_from + planned) // 2, planned) == pytest.approx(0.5)


@given(st.integers(1, 10**6), st.integers(0, 10**7))
def test_it_never_rises_and_is_never_nothing(planned: int, at: int) -> None:
    assert LAST_RATE <= planned_rate(at + 1, planned) <= planned_rate(at, planned) <= 1.0
    assert planned_rate(at + planned, planned) == LAST_RATE
