"""Answers calls from peers: checks the envelope once, then hands the request to the node or to one of its jobs.

Nothing a peer sends raises past here; faults cost it reputation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from ..discovery.services import Services
from ..network.base import Payload
from ..runtime.routes import Routes
from ..runtime.throttle import PATIENCE
from ..wire.envelope import Envelope, open_envelope
from ..wire.errors import PeerMisbehaved, PeerRefused
from ..wire.ids import PeerId
from ..wire.messages import (
    MAX_PEERS_PER_ANSWER,
    PROTOCOL,
    Find,
    GetJobFile,
    GetManifest,
    GetPeers,
    GetView,
    Hello,
    JobFileIs,
    ManifestIs,
    Message,
    Peers,
    Ping,
    Pong,
    Refused,
    Store,
    Stored,
    ViewIs,
    Welcome,
    encode_message,
)
from ..wire.records import SignedRecord
from ..wire.run import RunAccess

NOT_YET = "not yet"  # members call a newcomer as soon as it announces itself; that it is not ready is no refusal


class RouterHost(Protocol):
    """What answering needs to know of the node."""

    name: str
    role: str
    access: RunAccess | None
    manifest: bytes

    def routes(self, job: str) -> Routes | None:
        """What peers may ask of a job; None while it is not done here."""
        ...

    def prepares(self, job: str) -> bool:
        """Whether the node takes part in a job that is not ready yet."""
        ...

    def job_file(self, job: str) -> bytes | None:
        """The file that a job needs, for those who join; None where it is not here."""
        ...

    def view(self) -> ViewIs:
        """How this node is doing, for those who watch."""
        ...

    @property
    def record(self) -> SignedRecord | None:
        """This node's latest announcement."""
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
        self._for_all = Routes(
            {
                Ping: self._pong,
                Hello: self._welcome,
                Store: self._store,
                Find: lambda peer, request: self._records.serve_find(request),
                GetPeers: self._peers,
            }
        )
        self._for_members = Routes(
            {
                GetManifest: lambda peer, request: ManifestIs(host.manifest),
                GetJobFile: self._job_file,
                GetView: lambda peer, request: host.view(),
            }
        )

    # ---- calls and streams ----

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        """The answer to one call, whatever was in it."""
        self._traffic.calls_served += 1
        self._traffic.received_bytes += len(request)
        self._throttles.down.charge(len(request))
        answer = encode_message(await self._answer(peer, request))
        self._traffic.sent_bytes += len(answer)
        self._throttles.up.charge(len(answer))
        return answer

    async def _answer(self, peer: PeerId, data: bytes) -> Message:
        now = self._clock.monotonic()
        if self._reputation.ignored(peer, now):
            return self._refuse("ignored", "too many faults lately")
        if not self._reputation.admit_call(peer, now):
            self.misbehaved(peer, "too many calls")
            return self._refuse("busy", "too many calls; slow down")
        try:
            envelope = open_envelope(data)
            routes = self._routes(peer, envelope)
            request = routes.read(envelope.body)
            if not request.urgent:
                await self._throttles.up.ready(PATIENCE)
            answer = await routes.answer(peer, request)
            if request.limited_by_job:
                self._reputation.give_back(peer, self._clock.monotonic())
            return answer
        except PeerMisbehaved as fault:
            self.misbehaved(peer, str(fault))
            return self._refuse("malformed", str(fault)[:200])
        except PeerRefused as refusal:
            return self._refuse(refusal.code, refusal.reason)
        finally:
            self._table.called(peer)

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        """The stream a peer asks for; PeerRefused or PeerMisbehaved when there is none for it."""
        self._traffic.calls_served += 1
        now = self._clock.monotonic()
        if self._reputation.ignored(peer, now) or not self._reputation.admit_call(peer, now):
            raise PeerRefused("busy", "too many faults or calls lately")
        envelope = open_envelope(request)
        payload = await self._routes(peer, envelope).stream(peer, envelope.body)
        self._traffic.sent_bytes += payload.size
        return replace(payload, throttle=self._throttles.up)

    def _routes(self, peer: PeerId, envelope: Envelope) -> Routes:
        """Who answers a request; PeerRefused unless it is about this node's run and its sender belongs to it."""
        access = self._host.access
        if not envelope.run and not envelope.job:
            return self._for_all
        if self._host.role == "node" and (access is None or not self._host.manifest):
            raise PeerRefused(NOT_YET, "this node is still entering its run; ask again later")
        if access is None or not self._host.manifest or envelope.run != access.tag:
            raise PeerRefused("unknown run", "this node is not in that run")
        if not access.admits(envelope.proof, peer, self._own):
            raise PeerRefused("private", "the run is private and the proof of its key is missing or wrong")
        routes = self._host.routes(envelope.job) if envelope.job else self._for_members
        if routes is None and self._host.prepares(envelope.job):
            raise PeerRefused(NOT_YET, "this node is still preparing that job; ask again later")
        if routes is None:
            raise PeerRefused("unknown job", "this node does not take part in that job")
        return routes

    def _refuse(self, code: str, reason: str) -> Refused:
        self._traffic.refused += code != NOT_YET
        return Refused(code, reason)

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        self._reputation.fault(peer, reason, self._clock.monotonic())

    # ---- what the node itself answers ----

    def _pong(self, peer: PeerId, request: Ping) -> Pong:
        known = self._table.count_present(self._tag())
        return Pong(self._swarm_clock.announced(), known, knows_you=self._table.get(peer) is not None)

    def _welcome(self, peer: PeerId, request: Hello) -> Welcome:
        host = self._host
        if request.protocol != PROTOCOL:
            raise PeerRefused("protocol", f"you speak protocol {request.protocol}, this node {PROTOCOL}")
        if request.announcement is not None and request.announcement.peer == peer:
            self._take_in(request.announcement, peer)
        private = host.access is not None and host.access.private
        hint = host.access.hint(self._own, peer) if host.access is not None and private else b""
        return Welcome(
            protocol=PROTOCOL,
            time=self._swarm_clock.announced(),
            run="" if host.access is None or private else host.access.run,
            role=host.role,
            name=host.name,
            private=private,
            run_hint=hint,
            announcement=host.record,
        )

    def _job_file(self, peer: PeerId, request: GetJobFile) -> JobFileIs:
        content = self._host.job_file(request.job)
        if content is None:
            raise PeerRefused("no file", "this node does not have that job's file, or not yet")
        return JobFileIs(content)

    def _store(self, peer: PeerId, request: Store) -> Stored:
        return self._records.serve_store(peer, request)

    def _peers(self, peer: PeerId, request: GetPeers) -> Peers:
        there = [known.record for known in self._table.present(request.run) if known.id != peer]
        self._rng.shuffle(there)  # whoever asks again hears of others
        own = [self._host.record] if self._host.record is not None and self._tag() == request.run else []
        return Peers(tuple([*own, *there][:MAX_PEERS_PER_ANSWER]))

    def _tag(self) -> str:
        return self._host.access.tag if self._host.access is not None else ""
