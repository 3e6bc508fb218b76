"""Nodes that do nothing but hold shards, on a simulated network: they can be killed at any instant and come back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import numpy as np

from p2pnode.errors import PeerMisbehaved, PeerRefused
from p2pnode.ids import Identity, PeerId
from p2pnode.messages import Refused, TellShards, decode_request, decode_stream_request, encode
from p2pnode.network.base import Payload
from p2pnode.network.sim import Links, SimNetwork, SimSwarm
from p2pnode.network.virtual import run_virtual
from p2pnode.node.admission import Admission
from p2pnode.node.holdings import USUAL, Holdings
from p2pnode.node.parts import make_parts
from p2pnode.node.shardcare import CareRules
from p2pnode.node.status import Event
from p2pnode.node.world import World, inline
from p2pnode.run import RunAccess
from p2pnode.shards.samples import encode_samples, sample_layout, samples_id
from p2pnode.simulate import SimClock
from p2pnode.store.storage import MemoryStorage, Storage

RUN = RunAccess.parse("abcdefghijklmnopqrstuvwxyz")
T = TypeVar("T")


def columns(seed: int, count: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.integers(0, 256, (count, 4, 4), dtype=np.uint8), "y": rng.integers(0, 10, count)}


LAYOUT = sample_layout(columns(0))


def shard(seed: int, count: int = 5) -> tuple[str, bytes]:
    made = columns(seed, count)
    return samples_id(made), encode_samples(made)


class ShardNode:
    """One node; `stop` is a kill: nothing is written or sent after it. The disk stays."""

    def __init__(self, world: Shards, number: int) -> None:
        self.world = world
        self.number = number
        self.identity = Identity(bytes([number + 1]) * 32)
        self.disk: Storage = MemoryStorage()
        self.room: int | None = None
        self.own: list[tuple[str, bytes]] = []
        self.events: list[Event] = []
        self.alive = False
        self.starts = 0

    @property
    def peer(self) -> PeerId:
        return self.identity.peer_id

    async def start(self) -> None:
        self.alive = True
        self.starts += 1
        self.network: SimNetwork = self.world.swarm.network(self.peer)
        rng = random.Random(f"{self.number} {self.starts}")
        parts = make_parts(self.identity, World(SimClock(0.0), rng, self.disk, inline), self.network)
        self.parts = parts
        parts.events.listen(self.events.append)
        admission = Admission(RUN, self.peer, "main")
        self.holdings = Holdings(parts, admission, LAYOUT, self.members, self.room, self.world.rules)
        for id, content in self.own:
            self.holdings.add_own(id, content)
        await self.network.start(self)
        for other in self.world.nodes:
            if other is not self:
                self.network.learn(other.peer, (self.world.swarm.host_of(other.peer).address,))
        await self.holdings.start()
        self.task = asyncio.create_task(self.holdings.keep())

    def members(self) -> list[PeerId]:
        return [node.peer for node in self.world.nodes if node is not self and node.alive]

    def stop(self) -> None:
        self.alive = False
        self.network.stop("closed", "killed")
        self.task.cancel()

    # ---- network.base.Server ----

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        message = decode_request(request)
        assert isinstance(message, TellShards)
        try:
            return encode(await self.holdings.answer(peer, message))
        except PeerMisbehaved as fault:
            self.misbehaved(peer, str(fault))
            return encode(Refused("malformed", str(fault)[:200]))
        except PeerRefused as refusal:
            return encode(Refused(refusal.code, refusal.why))

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        return await self.holdings.payload(peer, decode_stream_request(request))

    def misbehaved(self, peer: PeerId, why: str) -> None:
        self.parts.standing.fault(peer, why, 0.0)

    def faults(self, other: ShardNode) -> dict[str, int]:
        return self.parts.standing.reasons_of(other.peer)

    def said(self, kind: str) -> list[str]:
        return [event.text for event in self.events if event.kind == kind]


class Shards:
    """Some such nodes."""

    def __init__(self, count: int, rules: CareRules = USUAL) -> None:
        self.rules = rules
        self.swarm = SimSwarm(1, Links(latency=0.02, jitter=0.0))
        self.nodes = [ShardNode(self, number) for number in range(count)]
        for node in self.nodes:
            self.swarm.add_host(node.peer)

    async def start(self) -> None:
        for node in self.nodes:
            await node.start()

    async def close(self) -> None:
        for node in self.nodes:
            if node.alive:
                node.stop()
        await asyncio.sleep(1.0)

    def holders(self, id: str) -> list[int]:
        """Who believes to hold a shard."""
        return [n.number for n in self.nodes if n.alive and id in n.holdings.held()]

    def having(self, id: str) -> list[int]:
        return [n.number for n in self.nodes if n.alive and id in n.holdings.ids()]


def play(count: int, act: Callable[[Shards], Awaitable[T]], rules: CareRules = USUAL) -> T:
    """Let something happen among `count` nodes in virtual time."""

    async def story() -> T:
        shards = Shards(count, rules)
        try:
            return await act(shards)
        finally:
            await shards.close()

    return run_virtual(story())
