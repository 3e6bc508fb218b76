"""Limits on bytes a second: streams and calls slow down to them, and none breaks."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from p2pnode.discovery.reputation import Reputation
from p2pnode.discovery.services import PeerObserver
from p2pnode.discovery.table import PeerTable
from p2pnode.merging.messages import Exchange
from p2pnode.merging.snapshots.messages import SnapshotRequest
from p2pnode.network.base import MemorySink, Payload, StreamLimits
from p2pnode.network.sim import Links
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.runtime.calls import Calls
from p2pnode.runtime.throttle import PATIENCE, STREAM_RATE, Throttle, Throttles
from p2pnode.simulate import SimClock
from p2pnode.wire.errors import PeerMisbehaved, PeerRefused
from p2pnode.wire.messages import GetManifest, ManifestIs, Ping, Pong
from p2pnode.wire.status import LimitOptions
from tests.merging.snapshots.test_snapshot_driver import LARGE, Swarm, in_swarm
from tests.network.sim_world import World as SimWorld
from tests.network.sim_world import in_world
from tests.node.test_router import ALICE, PUBLIC, SIGNED, Answering

FAST = Links(latency=0.01, jitter=0.0, rate=1e9)
CONTENT = bytes(range(256)) * 4096  # 1 MiB


def limited(direction: str, rate: float) -> LimitOptions:
    return LimitOptions(max_upload=rate) if direction == "max_upload" else LimitOptions(max_download=rate)


def throttled(up: Throttle, request: SnapshotRequest, payload: Payload) -> Payload:
    return Payload(payload.size, payload.digest, payload.read, up)


def throttle(rate: float | None) -> Throttle:
    made = Throttle(SimClock(0.0))
    made.limit(rate)
    return made


@pytest.mark.parametrize("rate", [32_000.0, 100_000.0, 3e6])
@pytest.mark.parametrize("side", ["sends", "receives"])
def test_a_stream_takes_as_long_as_the_limit_says_and_comes_whole(rate: float, side: str) -> None:
    async def test(world: SimWorld) -> float:
        limited = throttle(rate)
        whole = Payload.of(CONTENT)
        world.servers[0].offers = Payload(whole.size, whole.digest, whole.read, limited if side == "sends" else None)
        sink, begun = MemorySink(), asyncio.get_running_loop().time()
        limits = StreamLimits(2 << 20, throttle=limited if side == "receives" else None)
        await world.networks[1].fetch(world.peer(0), b"x", sink, limits)
        assert sink.content() == CONTENT
        assert world.servers[0].faults == []
        return asyncio.get_running_loop().time() - begun

    taken, least = in_world(2, test, FAST), len(CONTENT) / rate
    assert least - 2.0 <= taken <= least + 2.0


def test_a_limited_node_feeds_so_many_streams_as_it_can_and_tells_the_others_to_come_later() -> None:
    async def test(world: SimWorld) -> None:
        whole = Payload.of(CONTENT)
        world.servers[0].offers = Payload(whole.size, whole.digest, whole.read, throttle(2.5 * STREAM_RATE))

        async def fetched() -> str:
            sink = MemorySink()
            try:
                await world.networks[1].fetch(world.peer(0), b"x", sink, StreamLimits(2 << 20))
            except PeerRefused as refusal:
                return str(refusal)
            return "whole" if sink.content() == CONTENT else "torn"

        ends = await asyncio.gather(*(fetched() for _ in range(4)))
        assert ends.count("whole") == 2
        assert [end for end in ends if "ask again later" in end] == [end for end in ends if end != "whole"]

    in_world(2, test, FAST)


def test_a_limit_that_is_lifted_lets_go_what_waits() -> None:
    async def main() -> float:
        throttles = Throttles(SimClock(0.0))
        throttles.follow(LimitOptions(max_upload=1000.0))
        throttles.up.charge(1_000_000)
        waiting = asyncio.create_task(throttles.ready())
        await asyncio.sleep(5.0)
        assert not waiting.done()
        throttles.follow(LimitOptions())
        await waiting
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) < 6.0


def test_a_peer_is_not_kept_waiting_for_long() -> None:
    async def main() -> None:
        up = throttle(1000.0)
        up.charge(3000)
        await up.ready(PATIENCE)
        up.charge(10_000)
        with pytest.raises(PeerRefused, match="later"):
            await up.ready(PATIENCE)

    run_virtual(main())


@pytest.mark.parametrize("direction", ["max_upload", "max_download"])
def test_a_newcomer_gets_its_snapshot_from_limited_members_and_over_a_limited_link(direction: str) -> None:
    async def test(swarm: Swarm) -> float:
        for member in swarm.members[:-1]:
            member.publish()
        swarm.meet((0, 1))
        rules = limited(direction, 64_000.0)
        for member in swarm.members if direction == "max_upload" else [swarm.newcomer]:
            member.services.calls.throttles.follow(rules)
            up = member.services.calls.throttles.up
            member.bend = partial(throttled, up)
        begun = asyncio.get_running_loop().time()
        assert await swarm.join(0, 1)
        assert (swarm.newcomer.policy.weights() == swarm.members[0].policy.weights()).all()
        return asyncio.get_running_loop().time() - begun

    size = 4 * LARGE
    assert in_swarm(3, LARGE, test) > size / 64_000 / 2 - 2


def test_a_node_over_its_limit_says_later_and_still_shows_that_it_lives() -> None:
    node = Answering()
    node.services.calls.throttles.follow(LimitOptions(max_upload=32_000.0))
    node.services.calls.throttles.up.charge(10_000_000)
    with pytest.raises(PeerRefused, match="later"):
        node.ask(ALICE.peer_id, GetManifest(), ManifestIs, PUBLIC.tag)
    assert isinstance(node.ask(ALICE.peer_id, Ping(), Pong), Pong)
    assert node.services.reputation.faults_of(ALICE.peer_id) == 0
    node.services.calls.throttles.follow(LimitOptions())
    assert node.ask(ALICE.peer_id, GetManifest(), ManifestIs, PUBLIC.tag) == ManifestIs(SIGNED)


@pytest.mark.parametrize("direction", ["max_upload", "max_download"])
def test_own_calls_wait_for_the_limit_and_their_time_is_not_the_peers_fault(direction: str) -> None:
    async def test(world: SimWorld) -> None:
        clock = SimClock(0.0)
        table, reputation = PeerTable(world.peer(1)), Reputation()
        observer = PeerObserver(table, reputation, clock)
        calls = Calls(world.networks[1], clock, observer)
        calls.throttles.follow(limited(direction, 32_000.0))
        begun = asyncio.get_running_loop().time()
        request = Exchange(bytes(100_000))
        for _ in range(4):
            await asked(calls, world, request)
        taken = asyncio.get_running_loop().time() - begun
        assert taken == pytest.approx(3 * 100_000 / 32_000, abs=2.0), "the first goes at once, each other waits for one"
        before = asyncio.get_running_loop().time()
        await asked(calls, world, Ping())
        assert asyncio.get_running_loop().time() - before < 1.0

    in_world(2, test, FAST)


async def asked(calls: Calls, world: SimWorld, request: Exchange | Ping) -> None:
    """The other echoes, which is no answer; how long it takes is what matters."""
    with pytest.raises(PeerMisbehaved):
        await calls.ask(world.peer(0), request, Pong)
