"""The token bucket: what goes through it in any time is what the limit allows, and one message more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from p2pnode.runtime.throttle import BURST, Bucket

RATES = st.floats(1_000, 1e7)
MESSAGES = st.lists(st.integers(1, 1 << 20), min_size=1, max_size=30)


@given(RATES, MESSAGES)
def test_who_waits_stays_within_the_limit(rate: float, messages: list[int]) -> None:
    bucket, now, sent = Bucket(rate), 0.0, 0
    for count in messages:
        now += bucket.wait(now)
        assert sent <= rate * (now + BURST) * (1 + 1e-9), "before each, all that went is paid for, but for a burst"
        bucket.spend(count, now)
        sent += count


@given(MESSAGES)
def test_without_a_limit_nothing_waits_and_nothing_is_owed(messages: list[int]) -> None:
    bucket = Bucket()
    for count in messages:
        bucket.spend(count, 0.0)
    assert bucket.wait(0.0) == 0.0
    bucket.set_rate(1.0, 0.0)
    assert bucket.wait(0.0) == 0.0


@given(RATES, st.integers(1, 1 << 24))
def test_what_is_owed_is_paid_off_by_waiting(rate: float, count: int) -> None:
    bucket = Bucket(rate)
    bucket.spend(count, 5.0)
    wait = bucket.wait(5.0)
    assert bucket.wait(5.0 + wait + 1e-6) <= 1e-6


def test_a_new_limit_holds_at_once_for_what_is_owed() -> None:
    bucket = Bucket(100.0)
    bucket.spend(1_000, 0.0)
    assert bucket.wait(0.0) == 9.0
    bucket.set_rate(1_000.0, 0.0)
    assert bucket.wait(0.0) == 0.0
    bucket.set_rate(10.0, 0.0)
    assert bucket.wait(0.0) == 99.0
    bucket.set_rate(None, 0.0)
    assert bucket.wait(0.0) == 0.0


def test_a_stream_goes_in_pieces_of_a_part_of_a_second() -> None:
    assert Bucket(100_000).piece(512_000) == 25_000
    assert Bucket(1e9).piece(512_000) == Bucket().piece(512_000) == 512_000
