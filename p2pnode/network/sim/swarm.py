"""The hosts, links, faults and trace that all simulated networks share. All randomness comes from one seed.

Messages take time and may be lost, duplicated or late. Whether one passes is decided when it arrives, so a partition
also stops what is under way. A host whose process is gone answers with a reset, like an operating system; a host behind
a partition does not answer. Routing is idealised (see ring). Host number n has the address /ip4/10.a.b.c/tcp/4001.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol

from ...wire.ids import PeerId
from ...wire.types import Seconds
from .faults import PROCESS_FAULTS, ActiveFaults, Fault
from .ring import RingRouting, ring_id
from .trace import Trace

if TYPE_CHECKING:
    from .network import SimNetwork
    from .traffic import Stream

RETRANSMIT: Seconds = 1.0  # what a lost packet costs a reliable connection
LATE_FACTOR = 10.0  # a reordered message is late by up to this many times the mean latency

Arrive = Callable[[], None]


@dataclass(frozen=True)
class Links:
    """How messages travel. Probabilities are for each message; `rate` is the upload of one host in bytes per second."""

    latency: Seconds = 0.05
    jitter: Seconds = 0.02
    rate: float = inf
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0


class Runner(Protocol):
    """Runs the nodes, and carries out crashes and restarts of their processes."""

    def crash(self, index: int) -> None:
        """End the process: cancel all its tasks."""
        ...

    def restart(self, index: int) -> None:
        """Start the process again from its disk, on a new SimNetwork."""
        ...

    def begin(self, fault: Fault) -> None:
        """Let a fault of a process, its machine's disk or clock (faults.PROCESS_FAULTS) happen."""
        ...

    def end(self, fault: Fault) -> None:
        """End such a fault."""
        ...


@dataclass(eq=False)
class SimHost:
    """A machine with one address. `network` is that of the node that runs there, if any."""

    index: int
    peer: PeerId
    ring: int
    transport: str
    network: SimNetwork | None = None
    sending_until: Seconds = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0

    @property
    def address(self) -> str:
        return f"{self.transport}/p2p/{self.peer}"

    @property
    def up(self) -> bool:
        return self.network is not None and self.network.health.state == "up"


class SimSwarm:
    """A simulated network for any number of nodes, which must all run in the same loop."""

    def __init__(
        self, seed: int, links: Links | None = None, keep_trace: int = 0, runner: Runner | None = None
    ) -> None:
        self.links = links or Links()
        self.rng = random.Random(f"swarm {seed}")
        self.trace = Trace(keep_trace)
        self.routing = RingRouting()
        self.active = ActiveFaults()
        self.hosts: list[SimHost] = []
        self.streams: dict[Stream, None] = {}
        self._runner = runner
        self._context = copy_context()  # of no process: what is under way travels on whatever becomes of its sender
        self._by_peer: dict[PeerId, SimHost] = {}
        self._by_transport: dict[str, SimHost] = {}
        self._by_ring: dict[int, SimHost] = {}

    # ---- hosts ----

    def network(self, peer: PeerId) -> SimNetwork:
        """A network for a node with this id, on its host. A former network there is closed."""
        from .network import SimNetwork

        host = self._by_peer.get(peer) or self.add_host(peer)
        if host.network is not None:
            host.network.stop("closed", "replaced")
        host.network = SimNetwork(self, host)
        return host.network

    def add_host(self, peer: PeerId) -> SimHost:
        """Add a host, which fixes the peer's index and address before a node runs there."""
        index = len(self.hosts)
        number = index + 1
        transport = f"/ip4/10.{number >> 16}.{number >> 8 & 255}.{number & 255}/tcp/4001"
        host = SimHost(index, peer, ring_id(peer), transport)
        self.hosts.append(host)
        self._by_peer[peer] = self._by_transport[transport] = self._by_ring[host.ring] = host
        return host

    def host_of(self, peer: PeerId) -> SimHost | None:
        return self._by_peer.get(peer)

    def host_at(self, transport: str) -> SimHost | None:
        return self._by_transport.get(transport)

    def know_each_other(self, one: SimHost, other: SimHost) -> bool:
        return one.up and other.up and self.routing.component(one.ring) is self.routing.component(other.ring)

    def nearest(self, caller: SimHost, key: str) -> Iterator[SimHost]:
        """The hosts that the caller knows and can reach now, itself included, nearest to the key first."""
        for ring in self.routing.component(caller.ring).nearest(ring_id(key)):
            host = self._by_ring[ring]
            if not self.active or host is caller or self.reachable(caller, host):
                yield host

    def reachable(self, one: SimHost, other: SimHost) -> bool:
        """Whether messages pass in both directions."""
        blocked = self.active.blocked
        return not blocked(one.index, other.index) and not blocked(other.index, one.index)

    # ---- messages ----

    def send(self, source: SimHost, target: SimHost, kind: str, data: bytes, arrive: Arrive) -> None:
        """Carry a message of a call; it arrives once, twice or never."""
        links, rng = self.links, self.rng
        now = self.record(kind, source, target, data)
        size = len(data)
        source.sent_bytes += size
        loss = links.loss
        if self.active:
            loss = 1.0 - (1.0 - loss) * (1.0 - self.active.loss(source.index, target.index))
        if loss and rng.random() < loss:
            self.record("lost", source, target)
            return
        copies = 1
        if links.duplicate and rng.random() < links.duplicate:
            self.record("doubled", source, target)
            copies = 2
        loop = asyncio.get_running_loop()
        for _ in range(copies):
            due = self._due(now, source, target, size)
            if links.reorder and rng.random() < links.reorder:
                self.record("late", source, target)
                due += rng.random() * LATE_FACTOR * links.latency
            loop.call_at(due, self._deliver, source, target, size, arrive, context=self._context)

    def carry(
        self, source: SimHost, target: SimHost, kind: str, data: bytes, arrive: Arrive, after: Seconds = 0.0
    ) -> Seconds:
        """Carry bytes reliably: losses only delay them. Returns the time at which they arrive, not before `after`."""
        now = self.record(kind, source, target, data)
        size = len(data)
        source.sent_bytes += size
        due = max(after, self._due(now, source, target, size))
        while self.links.loss and self.rng.random() < self.links.loss:
            due += RETRANSMIT
        asyncio.get_running_loop().call_at(due, self._deliver, source, target, size, arrive, context=self._context)
        return due

    def latency(self, source: SimHost, target: SimHost) -> Seconds:
        links = self.links
        latency = links.latency + (2.0 * self.rng.random() - 1.0) * links.jitter
        if self.active:
            latency *= self.active.slowness(source.index, target.index)
        return max(latency, 1e-6)

    def _due(self, now: Seconds, source: SimHost, target: SimHost, size: int) -> Seconds:
        latency = self.latency(source, target)
        if self.links.rate == inf:
            return now + latency
        slowness = self.active.slowness(source.index, target.index)
        source.sending_until = max(now, source.sending_until) + slowness * size / self.links.rate
        return source.sending_until + latency

    def _deliver(self, source: SimHost, target: SimHost, size: int, arrive: Arrive) -> None:
        if self.active and self.active.blocked(source.index, target.index):
            self.record("lost", source, target)
        else:
            target.received_bytes += size
            arrive()

    def record(self, kind: str, source: SimHost, target: SimHost | None = None, data: bytes = b"") -> Seconds:
        """Add an event to the trace; returns the time."""
        now = asyncio.get_running_loop().time()
        self.trace.add(now, kind, source.index, -1 if target is None else target.index, data)
        return now

    # ---- faults ----

    def schedule(self, faults: Iterable[Fault]) -> None:
        """Let faults happen, each at its time."""
        loop = asyncio.get_running_loop()
        for fault in faults:
            loop.call_at(fault.time, self.begin, fault)

    def begin(self, fault: Fault) -> None:
        """Let a fault happen now, and end it after its time."""
        loop = asyncio.get_running_loop()
        self.trace.add(loop.time(), "fault", -1, -1, repr(fault).encode())
        if fault.kind == "crash":
            self._each(fault, self.crash)
        elif fault.kind == "daemon":
            self._each(fault, self.kill_daemon)
        elif fault.kind in PROCESS_FAULTS:
            if self._runner is not None:
                self._runner.begin(fault)
        else:
            self.active.begin(fault)
            if fault.kind == "split":
                self.routing.split({self.hosts[index].ring for index in fault.peers if index < len(self.hosts)})
            self._break_streams()
        if fault.seconds != inf:
            loop.call_later(fault.seconds, self.end, fault)

    def end(self, fault: Fault) -> None:
        if fault.kind == "crash":
            self._each(fault, self.restart)
        elif fault.kind == "daemon":
            self._each(fault, self.revive_daemon)
        elif fault.kind in PROCESS_FAULTS:
            if self._runner is not None:
                self._runner.end(fault)
        else:
            self.active.end(fault)

    def _each(self, fault: Fault, do: Callable[[int], None]) -> None:
        for index in fault.peers:
            if index < len(self.hosts):
                do(index)

    def _break_streams(self) -> None:
        for stream in list(self.streams):
            if not self.reachable(stream.caller, stream.server):
                self.record("reset", stream.caller, stream.server)
                stream.break_off()

    def crash(self, index: int) -> None:
        """Let the node disappear at once."""
        network, self.hosts[index].network = self.hosts[index].network, None
        if network is not None:
            network.stop("closed", "crashed")
        if self._runner is not None:
            self._runner.crash(index)

    def restart(self, index: int) -> None:
        if self._runner is not None and self.hosts[index].network is None:
            self._runner.restart(index)

    def kill_daemon(self, index: int) -> None:
        """Take the network of a node down until `revive_daemon`; the node goes on, or goes on starting."""
        network = self.hosts[index].network
        if network is not None and network.health.state in ("starting", "up"):
            network.stop("down", "the daemon died")

    def revive_daemon(self, index: int) -> None:
        network = self.hosts[index].network
        if network is not None and network.health.state == "down":
            network.come_up()
