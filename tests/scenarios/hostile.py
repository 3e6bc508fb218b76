"""A member of a simulated swarm that answers every exchange, and asks everybody, with nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import random

from p2pnode.merging.messages import Exchange, Exchanged
from p2pnode.network.base import Payload
from p2pnode.similarity.messages import SwapNeighbours
from p2pnode.simulate import EPOCH, Simulation
from p2pnode.wire.addresses import Address
from p2pnode.wire.envelope import seal, unseal
from p2pnode.wire.errors import NetworkDown, PeerError, PeerMisbehaved
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.messages import (
    PROTOCOL,
    Announcement,
    Hello,
    JobAnnouncement,
    Ping,
    Pong,
    Refused,
    Welcome,
    encode_message,
)
from p2pnode.wire.records import SignedRecord, sign_record


def read(request: bytes) -> Exchange | Ping | Hello | None:
    """What an honest node asks, if it is something a liar answers."""
    with contextlib.suppress(PeerMisbehaved):
        asked = unseal(request, Exchange, Ping, Hello)
        assert isinstance(asked, Exchange | Ping | Hello)
        return asked
    return None


class Liar:
    """Joins a run's circle as a node would, then sends garbage, and what others sent with bytes turned round."""

    def __init__(self, simulation: Simulation, seed: int = 1, identity: Identity | None = None) -> None:
        self.identity = identity or Identity(bytes([66]) * 32)
        self.network = simulation.swarm.network(self.identity.peer_id)
        self.asked = 0  # exchanges that honest nodes began with it
        self._simulation = simulation
        self._rng = random.Random(seed)
        self._heard: list[bytes] = [b"nothing yet"]

    async def live(self, seconds: float) -> None:
        """Greet everybody, and pester them."""
        await self.network.start(self)
        tag = self._tag()
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            for index in range(self._simulation.scenario.peers):
                with contextlib.suppress(PeerError, NetworkDown):
                    await self._pester(self._simulation.address(index), tag)
            await asyncio.sleep(1.0)
        await self.network.close()

    def _circle(self) -> str:
        """That of the first node."""
        training = self._simulation.scenario.training
        return "" if training is None else training.circle_of(0)

    async def _pester(self, address: Address, tag: str) -> None:
        await self._greet(address, tag)
        push = self._rng.random() < 0.5
        await self.network.call(address.peer, seal(Exchange(self._garbage(), push), tag, "main"), 2.0)

    async def _greet(self, address: Address, tag: str) -> None:
        await self.network.contact(address, 2.0)
        await self.network.call(address.peer, seal(Hello(PROTOCOL, self._word(self.identity, tag))), 2.0)

    def _word(self, who: Identity, tag: str) -> SignedRecord:
        now = asyncio.get_running_loop().time()
        word = Announcement(
            "liar", tag, (self.network.host.address,), started=now, jobs=(JobAnnouncement("main", self._circle()),)
        )
        return sign_record(who, f"peers/{tag}/p", encode_message(word), EPOCH + now + 200.0)

    def _tag(self) -> str:
        access = self._simulation.processes[0].node.access
        assert access is not None
        return access.tag

    def _garbage(self) -> bytes:
        if self._rng.random() < 0.3:
            return self._rng.randbytes(self._rng.randrange(300))
        copy = bytearray(self._rng.choice(self._heard))
        for _ in range(self._rng.randrange(4)):
            copy[self._rng.randrange(len(copy))] = self._rng.randrange(256)
        return bytes(copy)

    # ---- network.base.Server ----

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        message = read(request)
        if isinstance(message, Exchange):
            self.asked += 1
            self._heard = [*self._heard[-20:], message.body or b"empty"]
            return encode_message(Exchanged(self._garbage()))
        if isinstance(message, Ping):
            return encode_message(Pong(EPOCH + asyncio.get_running_loop().time()))
        if isinstance(message, Hello):
            return encode_message(
                Welcome(PROTOCOL, EPOCH + asyncio.get_running_loop().time(), role="node", name="liar")
            )
        return encode_message(Refused("no", "never"))

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        return Payload.of(self._rng.randbytes(1000))

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        pass


class Useless(Liar):
    """A member that answers pings and greetings, and refuses everything else."""

    async def _pester(self, address: Address, tag: str) -> None:
        await self._greet(address, tag)

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        message = read(request)
        return await super().answer(peer, request) if isinstance(message, Ping | Hello) else await self._rest()

    async def _rest(self) -> bytes:
        return encode_message(Refused("no", "never"))


class Silent(Useless):
    """A member that lets everything else hang."""

    async def _rest(self) -> bytes:
        await asyncio.sleep(30.0)
        return b""


class Teller(Useless):
    """Says without end that others have just started here, who do not exist."""

    def __init__(self, simulation: Simulation, identity: Identity, ghosts: list[Identity]) -> None:
        super().__init__(simulation, identity=identity)
        self._ghosts = ghosts

    async def _pester(self, address: Address, tag: str) -> None:
        await self.network.contact(address, 2.0)
        for some in (self._ghosts[:8], self._ghosts[8:]):
            claims = tuple(self._word(ghost, tag) for ghost in some)
            await self.network.call(address.peer, seal(SwapNeighbours(claims), tag, "main"), 2.0)
