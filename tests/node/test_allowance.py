"""Limits on bytes a second: streams and calls slow down to them, and none breaks."""

from __future__ import annotations

import asyncio

import pytest

from p2pnode.errors import PeerRefused
from p2pnode.guest import Rules
from p2pnode.network.base import MemorySink, Payload, StreamLimits
from p2pnode.network.sim import Links
from p2pnode.network.virtual import run_virtual
from p2pnode.node.allowance import PATIENCE, STREAM_RATE, Allowance, Throttle
from p2pnode.simulate import SimClock
from tests.network.sim_world import World, in_world
from tests.node.test_snapshots import LARGE, Swarm, in_swarm

FAST = Links(latency=0.01, jitter=0.0, rate=1e9)
CONTENT = bytes(range(256)) * 4096  # 1 MiB


def throttle(rate: float | None) -> Throttle:
    made = Throttle(SimClock(0.0))
    made.limit(rate)
    return made


@pytest.mark.parametrize("rate", [32_000.0, 100_000.0, 3e6])
@pytest.mark.parametrize("side", ["sends", "receives"])
def test_a_stream_takes_as_long_as_the_limit_says_and_comes_whole(rate: float, side: str) -> None:
    async def test(world: World) -> float:
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
    async def test(world: World) -> None:
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
        allowance = Allowance(SimClock(0.0))
        allowance.follow(Rules(max_upload=1000.0))
        allowance.up.charge(1_000_000)
        waiting = asyncio.create_task(allowance.ready())
        await asyncio.sleep(5.0)
        assert not waiting.done()
        allowance.follow(Rules())
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
        rules = Rules(**{direction: 64_000.0})
        for member in swarm.members if direction == "max_upload" else [swarm.newcomer]:
            member.parts.calls.allowance.follow(rules)
            up = member.parts.calls.allowance.up
            member.bend = lambda request, payload, up=up: Payload(payload.size, payload.digest, payload.read, up)
        begun = asyncio.get_running_loop().time()
        assert await swarm.join(0, 1)
        assert (swarm.newcomer.policy.weights() == swarm.members[0].policy.weights()).all()
        return asyncio.get_running_loop().time() - begun

    size = 4 * LARGE
    assert in_swarm(3, LARGE, test) > size / 64_000 / 2 - 2
