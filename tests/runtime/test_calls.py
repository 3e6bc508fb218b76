"""What calls teach of a peer."""

from __future__ import annotations

import pytest

from p2pnode.discovery.reputation import Reputation
from p2pnode.discovery.services import PeerObserver
from p2pnode.discovery.table import PeerTable
from p2pnode.merging.messages import Exchange
from p2pnode.network.sim import Links
from p2pnode.runtime.calls import Calls
from p2pnode.simulate import SimClock, identity_of
from p2pnode.wire.errors import PeerMisbehaved
from p2pnode.wire.messages import Announcement, Ping, Pong, encode_message
from p2pnode.wire.records import sign_record
from tests.network.sim_world import World, in_world

SLOW = Links(latency=0.05, jitter=0.0, rate=100_000.0)


def test_calls_measure_how_near_and_how_fast_a_peer_is() -> None:
    async def test(world: World) -> None:
        clock, table = SimClock(0.0), PeerTable(world.peer(1))
        observer = PeerObserver(table, Reputation(), clock)
        calls = Calls(world.networks[1], clock, observer)
        word = Announcement("echo", "run", ())
        table.add(sign_record(identity_of(0, 0), "peers/run/p", encode_message(word), 1e9), word)
        for request in (Ping(), Exchange(bytes(200_000)), Ping()):
            with pytest.raises(PeerMisbehaved):  # the other echoes, which is no answer
                await calls.ask(world.peer(0), request, Pong, 30.0)
        echo = table.get(world.peer(0))
        assert echo is not None
        assert echo.latency == pytest.approx(0.1, rel=0.2)
        assert echo.rate == pytest.approx(SLOW.rate, rel=0.2)

    in_world(2, test, SLOW)
