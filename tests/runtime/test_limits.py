"""The rules of the limiter: laws of the schedule, the reasons to rest, the machine's use, and the duty."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.config.schedule import DAY, Schedule, parse_schedule
from p2pnode.runtime.limits import (
    BUSY_AFTER,
    BUSY_SHARE,
    LEAST_DUTY,
    QUIET_AFTER,
    MachineSituation,
    Use,
    first_duty,
    next_duty,
    noticed,
    pause_after,
    resting,
)
from p2pnode.wire.errors import UsageError
from p2pnode.wire.status import LimitOptions

MINUTES = st.integers(0, DAY - 1)
SPANS = st.tuples(MINUTES, MINUTES).filter(lambda span: span[0] != span[1])
SCHEDULES = st.builds(Schedule, st.lists(SPANS, min_size=1, max_size=4).map(tuple))


@given(SPANS, MINUTES)
def test_a_span_and_the_one_from_its_end_to_its_beginning_share_the_day(span: tuple[int, int], minute: int) -> None:
    begin, end = span
    assert Schedule(((begin, end),)).allows(minute) != Schedule(((end, begin),)).allows(minute)


@given(SCHEDULES)
def test_what_is_written_is_read_again(schedule: Schedule) -> None:
    assert parse_schedule(str(schedule)) == schedule


def test_a_span_holds_from_its_first_minute_to_before_its_last_and_wraps_midnight() -> None:
    night = parse_schedule(" 22:00-7:00 , 12:00-13:00")
    held = [minute for minute in (0, 419, 420, 719, 720, 779, 780, 1319, 1320, 1439) if night.allows(minute)]
    assert held == [0, 419, 720, 779, 1320, 1439]
    assert parse_schedule("18:00-24:00").allows(1439)


@pytest.mark.parametrize(
    "text",
    ["", "22", "22-7", "22:00", "22:00-", "-7:00", "24:00-7:00", "25:00-7:00", "7:60-8:00", "a:b-c:d", "1:00-2:00,",
     "7:0-8:00", "٧:00-8:00", "22:00–07:00", "7:00-7:00", "07:00-08:00-09:00", ",".join(["1:00-2:00"] * 25)],
)  # fmt: skip
def test_a_slip_in_a_schedule_is_one_clear_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_schedule(text)
    assert "\n" not in str(caught.value)


@given(st.builds(MachineSituation, MINUTES, st.booleans(), st.booleans(), st.booleans()))
def test_without_rules_only_the_user_makes_it_rest(now: MachineSituation) -> None:
    assert resting(now, LimitOptions()) == ("paused by you" if now.paused else "")


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (MachineSituation(minute=60), ""),
        (MachineSituation(minute=600), "outside 22:00-07:00"),
        (MachineSituation(minute=60, on_battery=True), "on battery"),
        (MachineSituation(minute=60, in_use=True), "the machine is in use"),
        (MachineSituation(minute=600, paused=True, on_battery=True), "paused by you"),
    ],
)
def test_each_rule_says_why(now: MachineSituation, reason: str) -> None:
    rules = LimitOptions(pause_on_battery=True, idle_only=True, schedule="22:00-07:00")
    assert resting(now, rules) == reason


def looked(loads: list[float], cores: int = 2, use: Use | None = None) -> list[bool]:
    """Whether the machine is in use after each look, one a second."""
    found, state = [], use or Use()
    for second, load in enumerate(loads):
        state = noticed(state, load, cores, float(second))
        found.append(state.in_use)
    return found


def test_a_moment_of_load_is_nothing_and_seconds_of_it_are_somebody() -> None:
    assert not any(looked([0.9, 0.9, 0.0] * 20))
    assert looked([0.9] * 6).index(True) == BUSY_AFTER


def test_somebody_who_used_it_is_gone_only_after_a_while() -> None:
    in_use = Use(in_use=True)
    quiet = looked([0.0] * 40, use=in_use)
    assert quiet.index(False) == QUIET_AFTER
    assert all(looked(([0.0] * 20 + [0.9]) * 3, use=in_use)), "every sign of life begins the wait anew"


@given(st.lists(st.floats(BUSY_SHARE / 2, BUSY_SHARE), min_size=1, max_size=60), st.booleans())
def test_a_load_between_the_bounds_changes_nothing(loads: list[float], before: bool) -> None:
    assert set(looked(loads, use=Use(in_use=before))) == {before}


def test_one_busy_core_of_many_is_somebody() -> None:
    assert looked([0.07] * 6, cores=16)[-1]
    assert not looked([0.05] * 6, cores=16)[-1]


@given(
    share=st.floats(0.01, 1.0), per_duty=st.floats(0.02, 1.0), others=st.floats(0.0, 0.2), start=st.floats(0.02, 1.0)
)
def test_the_duty_settles_where_the_node_uses_its_share(
    share: float, per_duty: float, others: float, start: float
) -> None:
    duty = start
    for _ in range(60):
        duty = next_duty(duty, share, per_duty * duty + others)
        assert LEAST_DUTY <= duty <= 1.0
    wanted = min(1.0, max(LEAST_DUTY, (share - others) / per_duty))
    assert per_duty * duty + others == pytest.approx(per_duty * wanted + others, rel=0.05, abs=0.01)


def test_without_a_share_nothing_is_held_back() -> None:
    assert first_duty(None, 4) == next_duty(0.1, None, 1.0) == 1.0
    assert first_duty(0.5, 8) == 1.0, "one thread is an eighth of the machine"
    assert first_duty(0.25, 2) == 0.5


@given(st.floats(0.001, 10.0), st.floats(LEAST_DUTY, 1.0))
def test_work_and_the_pause_after_it_make_the_duty(work: float, duty: float) -> None:
    assert work / (work + pause_after(work, duty)) == pytest.approx(duty)
