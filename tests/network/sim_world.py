"""A small simulated swarm for tests: networks with a server that echoes, in one virtual loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from p2pnode.network.base import Payload
from p2pnode.network.sim import Links, Runner, SimNetwork, SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.simulate import identity_of
from p2pnode.wire.addresses import Address
from p2pnode.wire.errors import PeerRefused
from p2pnode.wire.ids import PeerId

T = TypeVar("T")
STEADY = Links(latency=0.1, jitter=0.0)


class Echo:
    """Answers what it was asked, streams what it `offers`, and writes down who asked what."""

    def __init__(self) -> None:
        self.offers = Payload.of(b"")
        self.asked: list[tuple[PeerId, bytes]] = []
        self.faults: list[str] = []
        self.pause = 0.0

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        self.asked.append((peer, request))
        if self.pause:
            await asyncio.sleep(self.pause)
        if request == b"raise":
            raise KeyError("a bug")
        return b"echo " + request

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        if request == b"no":
            raise PeerRefused("unknown", "not here")
        return self.offers

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        self.faults.append(reason)


class World:
    """A swarm of started networks, all of which know each other through the first."""

    def __init__(self, swarm: SimSwarm, count: int) -> None:
        self.swarm = swarm
        self.servers = [Echo() for _ in range(count)]
        self.networks: list[SimNetwork] = [swarm.network(identity_of(0, index).peer_id) for index in range(count)]

    async def start(self) -> None:
        for network, server in zip(self.networks, self.servers, strict=True):
            await network.start(server)
        for network in self.networks[1:]:
            await network.contact(self.address(0), 5.0)

    def peer(self, index: int) -> PeerId:
        return self.networks[index].peer

    def address(self, index: int) -> Address:
        return Address(self.swarm.hosts[index].address, self.peer(index))

    async def ask(self, source: int, target: int, request: bytes = b"hi", timeout: float = 5.0) -> bytes:
        return await self.networks[source].call(self.peer(target), request, timeout)


def in_world(
    count: int,
    test: Callable[[World], Awaitable[T]],
    links: Links = STEADY,
    seed: int = 1,
    keep_trace: int = 0,
    runner: Runner | None = None,
) -> T:
    """Run a test in a started world; nothing may be left under way when it ends."""

    async def main() -> T:
        world = World(SimSwarm(seed, links, keep_trace, runner), count)
        await world.start()
        result = await test(world)
        for network in world.networks:
            await network.close()
            assert network.under_way == 0
        await asyncio.sleep(10)
        assert len(asyncio.all_tasks()) == 1, "a task was left behind"
        assert not world.swarm.streams
        return result

    return run_virtual(main())
