"""Calls to peers. Every call is counted, limited, and reported to an observer: latency, failures, faults, time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from ..network.base import Clock, Network, Sink, StreamLimits
from ..wire.errors import NetworkDown, PeerError, PeerMisbehaved, PeerRefused
from ..wire.ids import PeerId
from ..wire.messages import Hello, Message, Ping, Pong, StreamRequest, decode_answer, encode_message
from ..wire.status import Traffic
from ..wire.types import Seconds
from .throttle import Throttles

CALL_TIMEOUT: Seconds = 5.0
URGENT = (Ping, Hello)  # small, and how peers see that this node lives: they count, and never wait for the limits

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
    """Is told what calls teach about peers."""

    def answered(self, peer: PeerId, seconds: Seconds, transferred: int) -> None: ...
    def failed(self, peer: PeerId) -> None: ...
    def misbehaved(self, peer: PeerId, reason: str) -> None: ...
    def reported_time(self, peer: PeerId, time: float, seconds: Seconds) -> None: ...


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
        """The peer's answer. PeerError as the network says; NetworkDown leaves the peer's record alone."""
        if not isinstance(request, URGENT):
            await self.throttles.ready()
        begun = self._clock.monotonic()
        data = encode_message(request)
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

    async def fetch(self, peer: PeerId, request: StreamRequest, sink: Sink, limits: StreamLimits) -> None:
        """Stream something into `sink`, as fast as this node may receive. PeerError as the network says."""
        try:
            async with self.throttles.down.turn(None):
                limits = replace(limits, throttle=self.throttles.down)
                await self._network.fetch(peer, encode_message(request), sink, limits)
        finally:
            self.traffic.received_bytes += sink.offset

    async def ping(self, peer: PeerId, timeout: Seconds = CALL_TIMEOUT) -> Pong | None:
        """The peer's answer, or None when there is none; its time is noted."""
        begun = self._clock.monotonic()
        try:
            pong = await self.ask(peer, Ping(), Pong, timeout)
        except (PeerError, NetworkDown):
            return None
        self._observer.reported_time(peer, pong.time, self._clock.monotonic() - begun)
        return pong

    def _heard(self, peer: PeerId, begun: float, transferred: int = 0) -> None:
        self.last_heard = self._clock.monotonic()
        self._observer.answered(peer, self.last_heard - begun, transferred)
