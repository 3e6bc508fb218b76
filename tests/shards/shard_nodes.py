"""Nodes that do nothing but hold shards, on a simulated network: they can be killed at any instant and come back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import numpy as np

from p2pnode.discovery.services import make_services
from p2pnode.network.base import Payload, Sink, StreamLimits, StreamResult
from p2pnode.network.sim import Links, SimNetwork, SimSwarm
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.runtime.calls import JobCalls
from p2pnode.runtime.seams import Seams, inline
from p2pnode.shards.driver import ShardDriver
from p2pnode.shards.maintenance import MaintenanceRules
from p2pnode.shards.messages import GetShard, SyncShards
from p2pnode.shards.samples import encode_samples, sample_layout
from p2pnode.shards.shard import columns_id
from p2pnode.shards.store import ShardFiles, StoredShard
from p2pnode.simulate import SimClock
from p2pnode.storage.files import MemoryStorage, Part
from p2pnode.wire.envelope import unseal
from p2pnode.wire.errors import PeerMisbehaved, PeerRefused
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.messages import Refused, encode_message
from p2pnode.wire.run import RunAccess
from p2pnode.wire.status import NodeEvent
from p2pnode.wire.types import Seconds
from tests.known import known

RUN = RunAccess.parse("abcdefghijklmnopqrstuvwxyz")
IMPATIENT = MaintenanceRules(period=1.0, sync_anyone_every=3, keeper_gone=8.0, holder_gone=12.0, offer_open=4.0)
STILL = Links(latency=0.02, jitter=0.0)
T = TypeVar("T")


def columns(seed: int, count: int = 5) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.integers(0, 256, (count, 4, 4), dtype=np.uint8), "y": rng.integers(0, 10, count)}


LAYOUT = sample_layout(columns(0))


def shard(seed: int, count: int = 5) -> tuple[str, bytes]:
    made = columns(seed, count)
    return columns_id(made), encode_samples(made)


class Died(BaseException):
    """The process was killed here."""


class Fate:
    """Counts the places of one process at which it can be killed, and kills it at one of them."""

    def __init__(self, kill: Callable[[], None]) -> None:
        self.places = 0
        self.dies_at = -1
        self.dead = False
        self._kill = kill

    def pass_by(self) -> None:
        self.places += 1
        if self.places == self.dies_at:
            self.dead = True
            self._kill()
        if self.dead:
            raise Died


class FatefulDisk(MemoryStorage):
    """A disk whose process may be killed before any write."""

    fate: Fate | None = None

    def _pass_by(self) -> None:
        if self.fate is not None:
            self.fate.pass_by()

    def write(self, name: str, *services: Part) -> None:
        self._pass_by()
        super().write(name, *services)

    def delete(self, name: str) -> None:
        self._pass_by()
        super().delete(name)


class FatefulNetwork:
    """A network whose process may be killed before and after anything that waits for it."""

    def __init__(self, network: SimNetwork, fate: Fate) -> None:
        self._network = network
        self._fate = fate

    def __getattr__(self, name: str) -> object:
        return getattr(self._network, name)

    async def call(self, peer: PeerId, request: bytes, timeout: Seconds) -> bytes:
        self._fate.pass_by()
        answer = await self._network.call(peer, request, timeout)
        self._fate.pass_by()
        return answer

    async def fetch(self, peer: PeerId, request: bytes, sink: Sink, limits: StreamLimits) -> StreamResult:
        self._fate.pass_by()
        fetched = await self._network.fetch(peer, request, sink, limits)
        self._fate.pass_by()
        return fetched


class ShardNode:
    """One node; `stop` is a kill: nothing is written or sent after it. The disk stays."""

    def __init__(self, world: Shards, number: int) -> None:
        self.world = world
        self.number = number
        self.identity = Identity(bytes([number + 1]) * 32)
        self.disk = FatefulDisk()
        self.room: int | None = None
        self.own: list[tuple[str, bytes]] = []
        self.events: list[NodeEvent] = []
        self.blamed: list[tuple[str, str]] = []
        self.alive = False
        self.starts = 0
        self.bend: Callable[[Payload], Payload] = lambda payload: payload

    @property
    def peer(self) -> PeerId:
        return self.identity.peer_id

    async def start(self, dies_at: int = -1) -> None:
        self.alive = True
        self.starts += 1
        self.network: SimNetwork = self.world.swarm.network(self.peer)
        self.fate = self.disk.fate = Fate(self._killed)
        rng = random.Random(f"{self.number} {self.starts}")
        world = Seams(SimClock(0.0), rng, self.disk, inline)
        self.services = make_services(self.identity, world, FatefulNetwork(self.network, self.fate))  # type: ignore[arg-type]
        self.services.reputation.fault = self._blame  # type: ignore[method-assign]
        self.services.events.listen(self.events.append)
        calls = JobCalls(self.services.calls, RUN, self.peer, "main")
        self.shard_driver = ShardDriver(self.services, calls, LAYOUT, self.members, self.room, self.world.rules)
        await self.network.start(self)
        for other in self.world.nodes:
            if other is not self:
                self.network.learn(other.peer, (known(self.world.swarm.host_of(other.peer)).address,))
        self.task = asyncio.create_task(self._live())
        self.fate.dies_at = dies_at

    async def _live(self) -> None:
        self._bring()
        await self.shard_driver.start()
        await self.shard_driver.run()

    def _bring(self) -> None:
        """What is this node's own has files here, unless it was given away: more can happen to files."""
        files = ShardFiles(self.disk, f"runs/{RUN.run}/main/shards")
        for id, content in self.own:
            record = files.record(id)
            if (record.kept or record.highest is None) and files.samples(id) is None:
                files.put_samples(id, content)
            self.shard_driver._store.entries[id] = StoredShard()

    def members(self) -> list[PeerId]:
        return [node.peer for node in self.world.nodes if node is not self and node.alive]

    def stop(self) -> None:
        self.fate.dead = True
        self._killed()

    def _killed(self) -> None:
        self.alive = False
        self.network.stop("closed", "killed")
        self.task.cancel()

    # ---- network.base.Server ----

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        self.fate.pass_by()
        message = unseal(request, SyncShards)
        try:
            answer = encode_message(await self.shard_driver.answer(peer, message))
        except PeerMisbehaved as fault:
            self.misbehaved(peer, str(fault))
            answer = encode_message(Refused("malformed", str(fault)[:200]))
        except PeerRefused as refusal:
            answer = encode_message(Refused(refusal.code, refusal.reason))
        self.fate.pass_by()
        return answer

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        self.fate.pass_by()
        return self.bend(await self.shard_driver.payload(peer, unseal(request, GetShard)))

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        self._blame(peer, reason, 0.0)

    def _blame(self, peer: str, reason: str, now: float) -> None:
        self.blamed.append((peer, reason))

    def faults(self, other: ShardNode) -> list[str]:
        return [reason for peer, reason in self.blamed if peer == other.peer]

    def said(self, kind: str) -> list[str]:
        return [event.text for event in self.events if event.kind == kind]


class Shards:
    """Some such nodes."""

    def __init__(self, count: int, rules: MaintenanceRules = IMPATIENT, links: Links = STILL) -> None:
        self.rules = rules
        self.swarm = SimSwarm(1, links)
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
        return [node.number for node in self.nodes if node.alive and id in node.shard_driver.held()]

    def having(self, id: str) -> list[int]:
        """Whose disk has the samples, whole."""
        return [node.number for node in self.nodes if node.alive and id in node.shard_driver.ids()]


def play(count: int, act: Callable[[Shards], Awaitable[T]], links: Links = STILL) -> T:
    """Let something happen among `count` nodes in virtual time."""

    async def story() -> T:
        asyncio.get_running_loop().set_exception_handler(_quiet_about_the_dead)
        shards = Shards(count, links=links)
        try:
            return await act(shards)
        finally:
            await shards.close()

    return run_virtual(story())


def _quiet_about_the_dead(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    error = context.get("exception")
    if not isinstance(error, Died | BaseExceptionGroup):
        raise AssertionError(context)
