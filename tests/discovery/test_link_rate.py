"""A link's rate comes from what exchanges take, and bounds what a round may say."""

from __future__ import annotations

import pytest

from p2pnode.discovery.link_rate import LEAST_BYTES, SHARE, LinkRate


def test_small_messages_tell_nothing() -> None:
    link = LinkRate()
    link.note(LEAST_BYTES - 1, 10.0, None)
    assert link.rate is None
    assert link.budget(2.0, 8) is None


def test_the_round_trip_is_no_part_of_the_rate_and_changes_are_followed() -> None:
    link = LinkRate()
    link.note(100_000, 1.1, 0.1)
    assert link.rate == pytest.approx(100_000)
    for _ in range(40):
        link.note(100_000, 0.2, 0.1)
    assert link.rate == pytest.approx(1_000_000, rel=0.01)
    link.note(100_000, 0.0, 5.0)
    assert link.rate is not None and link.rate < float("inf")


def test_all_that_comes_in_during_a_round_stays_within_its_share() -> None:
    link = LinkRate()
    link.note(1_000_000, 1.0, None)
    for group in (2, 4, 8):
        budget = link.budget(2.0, group)
        assert budget is not None
        assert budget * (group - 1) <= SHARE * 2.0 * 1_000_000
    assert link.budget(2.0, 1) == link.budget(2.0, 2)
