"""Calls to peers. Every call is counted, limited, and reported to an observer: latency, failures, faults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from ..network.base import Clock, Network, Sink, StreamLimits
from ..wire.envelope import seal
from ..wire.errors import PeerError, PeerMisbehaved, PeerRefused
from ..wire.ids import PeerId
from ..wire.messages import Message, decode_answer
from ..wire.run import RunAccess
from ..wire.status import MAIN_JOB, Traffic
from ..wire.types import Seconds
from .throttle import Throttles

CALL_TIMEOUT: Seconds = 5.0

A = TypeVar("A", bound=Message)


@dataclass
class TrafficCount:
    """Counts since the start; `frozen()` for showing."""

    sent_bytes: int = 0
    received_bytes: int = 0
    calls_made: int = 0
    calls_served: int = 0
    refused: int = 0

    def frozen(self) -> Traffic:
        return Traffic(self.sent_bytes, self.received_bytes, self.calls_made, self.calls_served, self.refused)


class CallObserver(Protocol):
    """Learns from calls how peers are doing."""

    def answered(self, peer: PeerId, seconds: Seconds, transferred: int) -> None: ...
    def failed(self, peer: PeerId) -> None: ...
    def misbehaved(self, peer: PeerId, reason: str) -> None: ...


class Calls:
    """Sends requests to peers. `last_heard` is when any peer last answered: the only proof of being connected."""

    def __init__(self, network: Network, clock: Clock, observer: CallObserver) -> None:
        self.last_heard: float | None = None
        self.traffic = TrafficCount()
        self.throttles = Throttles(clock)
        self._network = network
        self._clock = clock
        self._observer = observer

    async def ask(self, peer: PeerId, request: Message, expected: type[A], timeout: Seconds = CALL_TIMEOUT) -> A:
        """Ask the peer itself, about no run. PeerError as the network reports it, or NetworkDown."""
        return await self.call(peer, seal(request), expected, timeout, request.urgent)

    async def call(self, peer: PeerId, data: bytes, expected: type[A], timeout: Seconds, urgent: bool = False) -> A:
        """The answer to a sealed request. PeerError as the network reports it; NetworkDown leaves the peer's record."""
        if not urgent:
            await self.throttles.ready()
        begun = self._clock.monotonic()
        self.traffic.calls_made += 1
        self.traffic.sent_bytes += len(data)
        self.throttles.up.charge(len(data))
        try:
            raw = await self._network.call(peer, data, timeout)
            self.traffic.received_bytes += len(raw)
            self.throttles.down.charge(len(raw))
            self._heard(peer, begun, len(data) + len(raw))
            return decode_answer(raw, expected)
        except PeerMisbehaved as fault:
            self._observer.misbehaved(peer, str(fault))
            raise
        except PeerRefused:
            self._heard(peer, begun)
            raise
        except PeerError:
            self._observer.failed(peer)
            raise

    async def fetch(self, peer: PeerId, data: bytes, sink: Sink, limits: StreamLimits) -> None:
        """Stream the answer to a sealed request into `sink`, as fast as this node may receive. PeerError on failure."""
        try:
            async with self.throttles.down.turn(None):
                limits = replace(limits, throttle=self.throttles.down)
                await self._network.fetch(peer, data, sink, limits)
        finally:
            self.traffic.received_bytes += sink.offset

    def _heard(self, peer: PeerId, begun: float, transferred: int = 0) -> None:
        self.last_heard = self._clock.monotonic()
        self._observer.answered(peer, self.last_heard - begun, transferred)


class JobCalls:
    """Calls to members of a run about one of its jobs: each request carries run, job and the proof of membership.

    Without a job they go to the member itself.
    """

    def __init__(self, calls: Calls, access: RunAccess, me: PeerId, job: str = "") -> None:
        self.access = access
        self.me = me
        self.job = job
        self._calls = calls

    @property
    def run(self) -> str:
        """The run's tag, under which its members find each other."""
        return self.access.tag

    @property
    def scope(self) -> str:
        """The name that signed statements about this job carry, so that they hold in no other job or run."""
        return self.run if self.job == MAIN_JOB else f"{self.run}/{self.job}"

    async def ask(self, peer: PeerId, request: Message, expected: type[A], timeout: Seconds = CALL_TIMEOUT) -> A:
        """The peer's answer. PeerError as the network reports it, or NetworkDown."""
        return await self._calls.call(peer, self._sealed(peer, request), expected, timeout)

    async def fetch(self, peer: PeerId, request: Message, sink: Sink, limits: StreamLimits) -> None:
        """Stream the answer into `sink`. PeerError as the network reports it, or NetworkDown."""
        await self._calls.fetch(peer, self._sealed(peer, request), sink, limits)

    def _sealed(self, peer: PeerId, request: Message) -> bytes:
        return seal(request, self.access.tag, self.job, self.access.proof(self.me, peer))
