"""Swarm time: joiners take it over, members hold on to it, strangers converge, liars do not move it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from p2pnode.discovery.swarm_time import TOLERANCE, corrected_offset

DAY = 86_400.0


def test_a_joiner_takes_over_the_swarms_time() -> None:
    assert corrected_offset(0.0, [DAY, DAY + 0.1, DAY - 0.1], established=False) == DAY


def test_without_reports_nothing_changes() -> None:
    assert corrected_offset(5.0, [], established=False) == 5.0


@given(st.floats(-TOLERANCE, TOLERANCE))
def test_small_differences_are_left_alone(difference: float) -> None:
    assert corrected_offset(1.0, [1.0 + difference] * 3, established=True) == 1.0


def test_a_minority_of_liars_does_not_move_a_member() -> None:
    assert corrected_offset(0.0, [DAY, DAY, 0.5, 0.2, -0.3], established=True) == 0.0


def test_a_member_follows_the_majority() -> None:
    assert corrected_offset(0.0, [100.0] * 5, established=True) == 100.0


def test_two_strangers_a_day_apart_converge() -> None:
    mine, theirs = 0.0, DAY
    for _ in range(60):
        mine, theirs = corrected_offset(mine, [theirs], True), corrected_offset(theirs, [mine], True)
    assert abs(mine - theirs) < 61
