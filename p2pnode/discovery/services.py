"""What every component of a node is handed: identity, seams, network, events, calls, limits, and the known peers."""

from __future__ import annotations

from dataclasses import dataclass

from ..network.base import Clock, Network
from ..runtime.calls import Calls
from ..runtime.events import Events
from ..runtime.limiter import Limiter
from ..runtime.seams import Seams
from ..wire.ids import Identity, PeerId
from ..wire.status import NO_LIMITS, LimitOptions
from ..wire.types import Seconds
from .records import Records
from .registry import PeerRegistry, arrival_reporter, ignored_reporter
from .reputation import Reputation
from .swarm_time import SwarmClock
from .table import PeerTable


@dataclass(frozen=True)
class Services:
    """Dependencies shared by all components of a node. Complete when it is made; nothing is assigned later."""

    identity: Identity
    seams: Seams
    network: Network
    events: Events
    clock: SwarmClock
    table: PeerTable
    reputation: Reputation
    calls: Calls
    records: Records
    registry: PeerRegistry
    limiter: Limiter

    def fault(self, peer: str, reason: str) -> None:
        """Record that a peer did something wrong: enough of this, and it is ignored for a while."""
        self.reputation.fault(peer, reason, self.seams.clock.monotonic())


class PeerObserver:
    """Keeps peer table and reputation up to date with what calls teach (runtime.calls.CallObserver)."""

    def __init__(self, table: PeerTable, reputation: Reputation, clock: Clock) -> None:
        self._table = table
        self._reputation = reputation
        self._clock = clock

    def answered(self, peer: PeerId, seconds: Seconds, transferred: int) -> None:
        self._table.heard(peer, self._clock.monotonic(), seconds, transferred)

    def failed(self, peer: PeerId) -> None:
        self._table.failed(peer)

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        self._reputation.fault(peer, reason, self._clock.monotonic())


def make_services(identity: Identity, seams: Seams, network: Network, limits: LimitOptions = NO_LIMITS) -> Services:
    events = Events(seams.clock)
    clock = SwarmClock(seams.clock, lambda offset: events.say("clock", _clock_warning(offset), warning=True))
    table = PeerTable(identity.peer_id, on_arrival=arrival_reporter(events))
    reputation = Reputation(ignored_reporter(events))
    calls = Calls(network, seams.clock, PeerObserver(table, reputation, seams.clock))
    records = Records(network, identity, clock.now)

    def fault(peer: PeerId, reason: str) -> None:
        reputation.fault(peer, reason, seams.clock.monotonic())

    registry = PeerRegistry(table, records, network, clock, events, seams.storage, fault)
    limiter = Limiter(seams, events, calls.throttles, limits)
    return Services(identity, seams, network, events, clock, table, reputation, calls, records, registry, limiter)


def _clock_warning(offset: float) -> str:
    ahead = "behind" if offset > 0 else "ahead of"
    return f"this machine's clock is {abs(offset):.0f} s {ahead} the swarm's; p2pnode allows for it, but set it right"
