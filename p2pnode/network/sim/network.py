"""The network of one node in a simulated swarm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from math import ceil, log2
from typing import Any, TypeVar

from ...wire.addresses import Address
from ...wire.bounded import put_bounded
from ...wire.errors import NetworkDown, P2pnodeError, PeerMisbehaved, PeerTimeout, PeerUnreachable
from ...wire.ids import PeerId, short
from ...wire.messages import MAX_CALL_BYTES
from ...wire.types import Seconds
from ..base import Health, NetworkState, Server, Sink, StreamLimits, StreamResult
from ..libp2p.frames import fetch_stream
from ..libp2p.incoming import Incoming
from .swarm import Arrive, SimHost, SimSwarm
from .traffic import Call, Stream, fail, succeed

START_SECONDS: Seconds = 0.2
BITS_PER_HOP = 4  # gained by one step of a lookup, with buckets of 20
MAX_LEARNT = 1000  # peers whose addresses are remembered

T = TypeVar("T")


class SimNetwork:
    """Implements `Network`. Made by SimSwarm.network(); the swarm's routing is its DHT."""

    def __init__(self, swarm: SimSwarm, host: SimHost) -> None:
        self.peer = host.peer
        self.swarm = swarm
        self.host = host
        self._health = Health("starting")
        self._listeners: list[Callable[[Health], None]] = []
        self._learnt: dict[PeerId, tuple[str, ...]] = {}
        self._incoming: Incoming | None = None
        self._waiting: dict[asyncio.Future[Any], None] = {}  # operations of this node
        self._context = copy_context()  # that of the process which the network belongs to
        self._serving: dict[asyncio.Task[None], Arrive] = {}  # calls and streams it answers, and how to reset them

    @property
    def health(self) -> Health:
        return self._health

    @property
    def under_way(self) -> int:
        """The number of operations under way, own and served ones; 0 once closed."""
        return len(self._waiting) + len(self._serving)

    # ---- coming and going ----

    async def start(self, server: Server) -> None:
        self._incoming = Incoming(server)
        await asyncio.sleep(START_SECONDS)
        if self._health.state == "starting":
            self.come_up()
        while self._health.state == "down":  # noqa: ASYNC110  (a daemon that dies while it starts is replaced)
            await asyncio.sleep(START_SECONDS)

    def come_up(self) -> None:
        """Start serving. The DHT of a new daemon is empty, so the node knows nobody."""
        self.swarm.routing.start_anew(self.host.ring)
        self._set_health(Health("up", self._health.generation + 1))

    def stop(self, state: NetworkState, reason: str) -> None:
        """Fail everything under way, on both sides, and leave the swarm."""
        if self._health.state == "closed":
            return
        if self._health.state == "up":
            self.swarm.routing.remove(self.host.ring)
        self._set_health(Health(state, self._health.generation, reason))
        for outcome in list(self._waiting):
            fail(outcome, NetworkDown(f"our network is gone: {reason}"))
        for task, reset in list(self._serving.items()):
            task.cancel()
            reset()
        for stream in list(self.swarm.streams):
            if self.host in (stream.caller, stream.server):
                self.swarm.record("reset", stream.caller, stream.server)
                stream.break_off()

    async def close(self) -> None:
        self.stop("closed", "closed")
        ended = [task for task in self._serving if task is not asyncio.current_task()]
        await asyncio.gather(*ended, return_exceptions=True)

    def on_change(self, listener: Callable[[Health], None]) -> None:
        self._listeners.append(listener)

    def _set_health(self, health: Health) -> None:
        self._health = health
        self.swarm.record("health", self.host, None, health.state.encode())
        for listener in self._listeners:
            listener(health)

    # ---- finding peers ----

    async def addresses(self) -> tuple[str, ...]:
        self._check_up()
        return (self.host.address,)

    def learn(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        put_bounded(self._learnt, peer, addresses, MAX_LEARNT)

    async def contact(self, address: Address, timeout: Seconds) -> None:
        target = self.swarm.host_at(address.transport)
        await self._dial(target, address.peer, timeout)
        self.learn(address.peer, (address.text,))

    async def nearest(self, key: str, count: int) -> list[PeerId]:
        self._check_up()
        known = len(self.swarm.routing.component(self.host.ring))
        hops = ceil(log2(known) / BITS_PER_HOP)
        self.swarm.record("nearest", self.host)
        if hops:
            await self._wait(sum(2 * self.swarm.latency(self.host, self.host) for _ in range(hops)))
        found = self.swarm.nearest(self.host, key)
        return [host.peer for _, host in zip(range(count), found, strict=False)]

    async def _dial(self, target: SimHost | None, peer: PeerId, timeout: Seconds) -> None:
        """Connect to `target`, which must be `peer`. Takes a round trip; then the two know each other."""
        self._check_up()
        outcome = self._begin(timeout, peer)
        if target is None or target is self.host:
            self._later(outcome, PeerUnreachable(f"nothing answers where {short(peer)} should be"))
        else:
            self.swarm.carry(self.host, target, "contact", b"", lambda: self._dialled(target, peer, outcome))
        await self._outcome(outcome)

    def _dialled(self, target: SimHost, peer: PeerId, outcome: asyncio.Future[None]) -> None:
        """Answer a dial that has arrived at the target."""

        def answered() -> None:
            if target.peer != peer:
                fail(outcome, PeerMisbehaved(f"{short(target.peer)} answers where {short(peer)} should be"))
                return
            self.note_contact(target)
            succeed(outcome, None)

        if target.up:
            self.swarm.carry(target, self.host, "contact", b"", answered)
        else:
            self.reset_by(target, outcome)

    def reset_by(self, target: SimHost, outcome: asyncio.Future[Any]) -> None:
        """Fail an operation, because the target's machine answers that no process listens there."""
        error = PeerUnreachable(f"{short(target.peer)} is not there")
        self.swarm.carry(target, self.host, "unreachable", b"", lambda: fail(outcome, error))

    def _find(self, peer: PeerId) -> SimHost | None:
        """The host of a peer, if this node knows how to reach it."""
        host = self.swarm.host_of(peer)
        if host is None or host is self.host:
            return None
        if self.swarm.know_each_other(self.host, host) or host.address in self._learnt.get(peer, ()):
            return host
        return None

    def note_contact(self, other: SimHost) -> None:
        """Let the two hosts know each other, because the other has just answered."""
        if self.host.network is self and self.host.up and other.up:
            self.swarm.routing.join(self.host.ring, other.ring)

    # ---- calls ----

    async def call(self, peer: PeerId, request: bytes, timeout: Seconds) -> bytes:
        self._check_up()
        if len(request) > MAX_CALL_BYTES:
            raise ValueError(f"a request of {len(request)} bytes; {MAX_CALL_BYTES} are allowed")
        outcome: asyncio.Future[bytes] = self._begin(timeout, peer)
        target = self._find(peer)
        if target is None:
            self._later(outcome, PeerUnreachable(f"no way to {short(peer)} is known"))
        else:
            self.swarm.send(self.host, target, "call", request, Call(self, target, request, outcome).arrive)
        return await self._outcome(outcome)

    def serve(self, work: Coroutine[Any, Any, None], reset: Arrive) -> None:
        """Run `work` for a peer; `reset` tells the peer if this network stops before the work is done."""
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._serving[task] = reset
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        del self._serving[task]

    async def answer(self, call: Call) -> None:
        """Let the node answer, and send the answer back."""
        assert self._incoming is not None
        answer = await self._incoming.answer(call.caller.peer, call.request)
        self.swarm.send(self.host, call.caller.host, "answer", answer, lambda: call.answered(answer))

    # ---- streams ----

    async def fetch(self, peer: PeerId, request: bytes, sink: Sink, limits: StreamLimits) -> StreamResult:
        begun = self._health
        await self._dial(self._find(peer), peer, limits.first_byte)
        target = self.swarm.host_of(peer)
        assert target is not None
        if target.network is None or not target.up:
            raise PeerUnreachable(f"{short(peer)} is gone")
        stream = Stream(self.swarm, self.host, target)
        target.network.serve_fetch(stream)
        try:
            return await fetch_stream(stream.back, stream.forth, request, sink, limits)
        except PeerUnreachable:
            if self._health is not begun:
                raise NetworkDown("our network went down during a stream") from None
            raise
        finally:
            stream.break_off()

    def serve_fetch(self, stream: Stream) -> None:
        assert self._incoming is not None
        self.serve(self._incoming.stream(stream.caller.peer, stream.forth, stream.back), stream.break_off)

    # ---- waiting for an outcome ----

    def _check_up(self) -> None:
        if self._health.state != "up":
            raise NetworkDown(f"our network is {self._health.state} {self._health.reason}".strip())

    def _begin(self, timeout: Seconds, peer: PeerId) -> asyncio.Future[Any]:
        """The outcome of a new operation; it ends with a result, by `timeout`, or when this network goes down."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Any] = loop.create_future()
        self._waiting[outcome] = None
        timer = loop.call_later(timeout, fail, outcome, PeerTimeout(f"no answer from {short(peer)} in {timeout:g} s"))
        outcome.add_done_callback(lambda _: timer.cancel())
        return outcome

    async def _outcome(self, outcome: asyncio.Future[T]) -> T:
        try:
            return await outcome
        finally:
            self._waiting.pop(outcome, None)

    async def _wait(self, seconds: Seconds) -> None:
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[outcome] = None
        asyncio.get_running_loop().call_later(seconds, succeed, outcome, None)
        await self._outcome(outcome)

    def _later(self, outcome: asyncio.Future[Any], error: P2pnodeError) -> None:
        delay = self.swarm.latency(self.host, self.host)
        asyncio.get_running_loop().call_later(delay, fail, outcome, error)
