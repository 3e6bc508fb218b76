"""What this node answers when peers call. Nothing a peer sends raises past here; faults cost it standing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from ..discovery.admission import check_proof
from ..discovery.services import Services
from ..network.base import Payload
from ..runtime.calls import URGENT
from ..runtime.throttle import PATIENCE
from ..wire.errors import PeerMisbehaved, PeerRefused
from ..wire.ids import PeerId
from ..wire.messages import (
    MAX_PEERS_PER_ANSWER,
    PROTOCOL,
    Answer,
    AnyStreamRequest,
    Find,
    GetManifest,
    GetPeers,
    GetView,
    Hello,
    ManifestIs,
    Peers,
    Ping,
    Pong,
    Refused,
    Request,
    Store,
    ViewIs,
    Welcome,
    decode_request,
    decode_stream_request,
    encode_message,
)
from ..wire.records import SignedRecord
from ..wire.run import RunAccess


class Desk(Protocol):
    """The part of learning that peers ask. PeerRefused to say no, PeerMisbehaved when they ask nonsense."""

    async def answer(self, peer: PeerId, request: Request) -> Answer: ...
    async def payload(self, peer: PeerId, request: AnyStreamRequest) -> Payload: ...


class RouterHost(Protocol):
    """What answering needs to know of the node."""

    name: str
    role: str
    access: RunAccess | None
    manifest: bytes

    @property
    def desk(self) -> Desk | None:
        """Where what learns here is asked, once it does."""
        ...

    def view(self) -> ViewIs:
        """What we say of our learning to who watches."""
        ...

    @property
    def record(self) -> SignedRecord | None:
        """Our own latest announcement."""
        ...


class Router:
    """Implements network.base.Server for a node."""

    def __init__(self, host: RouterHost, services: Services) -> None:
        self._host = host
        self._own = services.identity.peer_id
        self._clock = services.seams.clock
        self._swarm_clock = services.clock
        self._records = services.records
        self._table = services.table
        self._rng = services.seams.rng
        self._reputation = services.reputation
        self._traffic = services.calls.traffic
        self._throttles = services.calls.throttles
        self._take_in = services.registry.take_in
        self._answers: dict[type, Callable[[PeerId, Request], Answer]] = {
            Ping: self._pong,
            Hello: self._welcome,
            Store: self._store,
            Find: self._find,
            GetPeers: self._peers,
            GetManifest: self._manifest,
            GetView: self._view,
        }

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        """The answer to one call, whatever was in it."""
        self._traffic.calls_served += 1
        self._traffic.received_bytes += len(request)
        self._throttles.down.charge(len(request))
        answer = encode_message(await self._answer(peer, request))
        self._traffic.sent_bytes += len(answer)
        self._throttles.up.charge(len(answer))
        return answer

    async def _answer(self, peer: PeerId, request: bytes) -> Answer:
        now = self._clock.monotonic()
        if self._reputation.ignored(peer, now):
            return self._refuse(Refused("ignored", "too many faults lately"))
        if not self._reputation.admit_call(peer, now):
            self.misbehaved(peer, "too many calls")
            return self._refuse(Refused("busy", "too many calls; slow down"))
        try:
            message = decode_request(request)
            if not isinstance(message, URGENT):
                await self._throttles.up.ready(PATIENCE)
            if type(message) in self._answers:
                return self._answers[type(message)](peer, message)
            return await self._desk().answer(peer, message)
        except PeerMisbehaved as fault:
            self.misbehaved(peer, str(fault))
            return self._refuse(Refused("malformed", str(fault)[:200]))
        except PeerRefused as refusal:
            return self._refuse(Refused(refusal.code, refusal.why))
        finally:
            self._table.called(peer)

    def _refuse(self, refusal: Refused) -> Refused:
        self._traffic.refused += 1
        return refusal

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        """What a newcomer to a model asks for; PeerRefused for anything else."""
        self._traffic.calls_served += 1
        now = self._clock.monotonic()
        if self._reputation.ignored(peer, now) or not self._reputation.admit_call(peer, now):
            raise PeerRefused("busy", "too many faults or calls lately")
        payload = await self._desk().payload(peer, decode_stream_request(request))
        self._traffic.sent_bytes += payload.size
        return replace(payload, throttle=self._throttles.up)

    def _desk(self) -> Desk:
        if self._host.desk is None:
            raise PeerRefused("unknown run", "this node does not learn, or not yet")
        return self._host.desk

    def misbehaved(self, peer: PeerId, why: str) -> None:
        self._reputation.fault(peer, why, self._clock.monotonic())

    def _pong(self, peer: PeerId, request: Request) -> Pong:
        known = self._table.count_present(self._tag())
        return Pong(self._swarm_clock.announced(), known, knows_you=self._table.get(peer) is not None)

    def _welcome(self, peer: PeerId, request: Request) -> Welcome:
        assert isinstance(request, Hello)
        host = self._host
        if request.protocol != PROTOCOL:
            raise PeerRefused("protocol", f"you speak protocol {request.protocol}, this node {PROTOCOL}")
        if request.announcement is not None and request.announcement.peer == peer:
            self._take_in(request.announcement, peer)
        private = host.access is not None and host.access.private
        return Welcome(
            protocol=PROTOCOL,
            time=self._swarm_clock.announced(),
            run="" if host.access is None or private else host.access.run,
            role=host.role,
            name=host.name,
            private=private,
            announcement=host.record,
        )

    def _store(self, peer: PeerId, request: Request) -> Answer:
        assert isinstance(request, Store)
        return self._records.serve_store(peer, request)

    def _find(self, peer: PeerId, request: Request) -> Answer:
        assert isinstance(request, Find)
        return self._records.serve_find(request)

    def _peers(self, peer: PeerId, request: Request) -> Peers:
        assert isinstance(request, GetPeers)
        there = [known.record for known in self._table.present(request.run) if known.id != peer]
        self._rng.shuffle(there)  # whoever asks again hears of others
        own = [self._host.record] if self._host.record is not None and self._tag() == request.run else []
        return Peers(tuple([*own, *there][:MAX_PEERS_PER_ANSWER]))

    def _tag(self) -> str:
        return self._host.access.tag if self._host.access is not None else ""

    def _manifest(self, peer: PeerId, request: Request) -> ManifestIs:
        assert isinstance(request, GetManifest)
        self._admit(peer, request)
        return ManifestIs(self._host.manifest)

    def _view(self, peer: PeerId, request: Request) -> ViewIs:
        assert isinstance(request, GetView)
        self._admit(peer, request)
        return self._host.view()

    def _admit(self, peer: PeerId, request: GetManifest | GetView) -> None:
        """PeerRefused unless the peer asks about our run and may."""
        access = self._host.access
        if access is None or not self._host.manifest or request.run != access.tag:
            raise PeerRefused("unknown run", "this node is not in that run")
        check_proof(access, request.proof, peer, self._own)
