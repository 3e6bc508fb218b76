"""Exchanges with partners: asking, answering, snapshots for newcomers. Beside training, which never waits for them."""

from __future__ import annotations

import asyncio
import contextlib

from ..errors import NetworkDown, PeerError, PeerMisbehaved, PeerRefused
from ..ids import PeerId
from ..merge.deltaset import DeltaSetPolicy
from ..merge.policy import Policy
from ..messages import Exchange, Exchanged, GetSnapshot, encode
from ..network.base import MemorySink, Payload, Seconds, StreamLimits
from ..run import RunAccess
from .parts import Parts
from .standings import Standings

MODEL = "main"  # logs and stores are keyed by model: a node may later train several
PARTNERS = 3
CIRCLE = 16
EXCHANGE_TIMEOUT: Seconds = 10.0
EXCHANGE_PERIOD: Seconds = 5.0
SNAPSHOT_OVERHEAD = 64 << 20


class Exchanging:
    """One model's talk with the others of its circle."""

    def __init__(self, parts: Parts, access: RunAccess, policy: Policy, standings: Standings, circle: str = "") -> None:
        self._parts = parts
        self._access = access
        self._policy = policy
        self._standings = standings
        self._circle_name = circle
        self._now = asyncio.Event()

    # ---- who ----

    def members(self) -> list[PeerId]:
        """Peers of the same circle that are there; of the whole run when no circle is declared."""
        present = self._parts.table.present(self._access.tag)
        words = [(peer.id, peer.announcement) for peer in present]
        return [peer for peer, word in words if word.role == "node" and word.circle == self._circle_name]

    def circle(self) -> list[PeerId]:
        return self.members()[: CIRCLE - 1]

    # ---- asking ----

    def soon(self) -> None:
        """There is something new to tell."""
        self._now.set()

    async def keep(self) -> None:
        """Exchange whenever there is something new, and now and then anyway, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXCHANGE_PERIOD):
                    await self._now.wait()
            self._now.clear()
            await self.once()

    async def once(self) -> None:
        """One exchange with each of up to three partners."""
        circle = self.circle()
        partners = self._parts.world.rng.sample(circle, min(PARTNERS, len(circle)))
        await asyncio.gather(*(self._exchange(partner) for partner in partners))
        policy = self._policy
        if isinstance(policy, DeltaSetPolicy) and policy.needs_snapshot and await self.adopt_from(partners):
            self._parts.events.say("caught up", "too far behind for entries; took a snapshot instead")

    async def _exchange(self, partner: PeerId) -> None:
        """One exchange. A partner that breaks the format loses standing; whatever happens, training goes on."""
        try:
            body = await self._ask(partner, self._policy.ask(partner), push=False)
            push = self._policy.take(partner, body)
            if push:
                await self._ask(partner, push, push=True)
            self._standings.exchanges += 1
        except ValueError as fault:
            self._fault(partner, f"exchange: {fault}")
        except (PeerError, NetworkDown):
            pass

    async def _ask(self, partner: PeerId, body: bytes, push: bool) -> bytes:
        proof = self._access.proof(self._parts.identity.peer_id, partner)
        request = Exchange(self._access.tag, MODEL, body, push, proof)
        return (await self._parts.calls.ask(partner, request, Exchanged, EXCHANGE_TIMEOUT)).body

    async def adopt_from(self, peers: list[PeerId]) -> bool:
        """Start where the first member that can say is; False when none can."""
        for peer in peers:
            try:
                content = await self._fetch_snapshot(peer)
                await self._parts.world.compute(lambda content=content: self._policy.adopt(content))  # type: ignore[misc]
            except (PeerError, NetworkDown):
                continue
            except ValueError as error:
                self._fault(peer, f"snapshot: {error}")
                continue
            return True
        return False

    async def _fetch_snapshot(self, peer: PeerId) -> bytes:
        limits = StreamLimits(max_bytes=8 * len(self._policy.readout()) + SNAPSHOT_OVERHEAD)
        proof = self._access.proof(self._parts.identity.peer_id, peer)
        sink = MemorySink()
        await self._parts.network.fetch(peer, encode(GetSnapshot(self._access.tag, MODEL, proof)), sink, limits)
        return sink.content()

    def _fault(self, peer: PeerId, why: str) -> None:
        self._parts.standing.fault(peer, why, self._parts.world.clock.monotonic())

    # ---- answering ----

    def answer(self, peer: PeerId, request: Exchange) -> Exchanged:
        """What a partner gets that asks or pushes; PeerRefused or PeerMisbehaved when it may not, or talks nonsense."""
        self._admit(peer, request.run, request.model, request.proof)
        try:
            if request.push:
                self._policy.take(peer, request.body)
                return Exchanged()
            return Exchanged(self._policy.answer(peer, request.body))
        except ValueError as fault:
            raise PeerMisbehaved(f"exchange: {fault}") from None

    async def payload(self, peer: PeerId, request: GetSnapshot) -> Payload:
        """The snapshot a newcomer asked for."""
        self._admit(peer, request.run, request.model, request.proof)
        return Payload.of(await self._parts.world.compute(self._policy.snapshot))

    def _admit(self, peer: PeerId, run: str, model: str, proof: bytes) -> None:
        if run != self._access.tag or model != MODEL:
            raise PeerRefused("unknown run", "this node does not learn that")
        if not self._access.admits(proof, peer, self._parts.identity.peer_id):
            raise PeerRefused("private", "the run is private and the proof of its key is missing or wrong")
