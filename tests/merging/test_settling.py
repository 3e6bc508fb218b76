"""The settling phase: members follow the same one, not too often, and the rate falls once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from p2pnode.merging.schedule import LAST_RATE
from p2pnode.merging.settling import FEWEST, LATEST, MOST, Phase, Settling

STEPS = st.integers(1, 10**6)


@given(STEPS, st.integers(0, 2 * MOST))
def test_the_rate_falls_in_the_phase_and_is_whole_outside(begin: int, since: int) -> None:
    phase = Phase(begin)
    assert FEWEST <= phase.length <= MOST
    assert phase.rate(begin - 1) == 1.0 == phase.rate(phase.end + since)
    inside = min(since, phase.length - 1)
    assert LAST_RATE <= phase.rate(begin + inside) <= 1.0
    assert phase.rate(phase.end - 1) <= max(LAST_RATE, 1 / phase.length)


@given(STEPS)
def test_who_asks_during_a_phase_gets_the_same_one(at: int) -> None:
    settling = Settling()
    phase = settling.request(at)
    assert settling.request(phase.end - 1) == phase
    later = settling.request(phase.end)
    assert later.begin == phase.next_begin, "the next one waits"
    assert settling.request(phase.end + 1) == later


@given(STEPS, STEPS)
def test_partners_agree_whoever_speaks_first(one_at: int, later: int) -> None:
    one, other = Settling(), Settling()
    other_at = one_at + later % FEWEST
    one.request(one_at)
    other.request(other_at)
    one.hear(other.begin, other_at)
    other.hear(one.begin, other_at)
    one.hear(other.begin, other_at)
    assert one.phase == other.phase == Phase(one_at)


@given(st.lists(st.tuples(st.integers(0, LATEST), st.booleans()), max_size=40), STEPS)
def test_no_claims_lower_the_rate_for_more_than_a_quarter_of_the_steps(claims: list[tuple[int, bool]], at: int) -> None:
    settling, slow, first = Settling(), 0, at
    for claim, near in claims:
        for _ in range(50):
            at += 1
            settling.hear(at if near else claim, at)
            slow += settling.rate(at) < 1.0
    assert slow <= (at - first) / 4 + Phase(at).length


def test_claims_from_the_far_future_and_nothing_are_not_followed() -> None:
    settling = Settling()
    for claim in (0, LATEST, 10_000):
        settling.hear(claim, 500)
    assert settling.begin == 0


def test_a_newcomer_that_hears_of_a_past_phase_waits_too() -> None:
    settling = Settling()
    settling.hear(1000, 1300)
    assert settling.rate(1300) == 1.0
    assert settling.request(1300).begin == Phase(1000).next_begin
