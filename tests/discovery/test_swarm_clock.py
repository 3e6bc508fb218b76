"""A node's idea of swarm time: what peers say moves it, nonsense does not, and it tells only what it knows."""

from __future__ import annotations

import math

import pytest

from p2pnode.discovery.swarm_time import UNKNOWN, SwarmClock
from p2pnode.wire.ids import PeerId

ALICE = PeerId("alice")


class Stopped:
    """A clock that shows 1000."""

    def time(self) -> float:
        return 1000.0

    def monotonic(self) -> float:
        return 0.0


def clock() -> SwarmClock:
    return SwarmClock(Stopped(), lambda offset: None)


def test_the_first_peers_time_is_adopted_and_passed_on() -> None:
    swarm_clock = clock()
    assert swarm_clock.announced() == UNKNOWN
    swarm_clock.report(ALICE, 90_000.0, round_trip=2.0)
    assert swarm_clock.now() == swarm_clock.announced() == 90_001.0
    assert swarm_clock.established


@pytest.mark.parametrize("nonsense", [UNKNOWN, -5.0, math.inf, -math.inf, math.nan, 1e300])
def test_what_cannot_be_a_time_is_ignored(nonsense: float) -> None:
    swarm_clock = clock()
    swarm_clock.report(ALICE, nonsense, round_trip=0.1)
    assert swarm_clock.now() == 1000.0
    assert not swarm_clock.established
