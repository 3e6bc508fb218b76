"""The parts of one node that its pieces share, made once."""

from __future__ import annotations

from dataclasses import dataclass

from ..config.options import NO_LIMITS, GuestSettings
from ..discovery.records import Records
from ..discovery.registry import PeerRegistry
from ..discovery.reputation import Reputation
from ..discovery.swarm_time import SwarmClock
from ..discovery.table import PeerTable
from ..network.base import Network
from ..runtime.calls import Calls
from ..runtime.events import Events
from ..runtime.limiter import Limiter
from ..runtime.seams import Seams
from ..wire.ids import Identity, PeerId


@dataclass(frozen=True)
class Services:
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

    def fault(self, peer: str, why: str) -> None:
        """A peer did something wrong: it costs it standing."""
        self.reputation.fault(peer, why, self.seams.clock.monotonic())


def make_services(identity: Identity, seams: Seams, network: Network, guest: GuestSettings = NO_LIMITS) -> Services:
    events = Events(seams.clock)
    clock = SwarmClock(seams.clock, lambda offset: events.say("clock", _clock_warning(offset), warning=True))
    table = PeerTable(identity.peer_id)
    reputation = Reputation()
    calls = Calls(network, seams.clock, clock, table, reputation)
    records = Records(network, identity, clock.now)

    def fault(peer: PeerId, why: str) -> None:
        reputation.fault(peer, why, seams.clock.monotonic())

    registry = PeerRegistry(table, records, network, clock, events, seams.storage, fault)
    limiter = Limiter(seams, events, calls.throttles, guest)
    return Services(identity, seams, network, events, clock, table, reputation, calls, records, registry, limiter)


def _clock_warning(offset: float) -> str:
    ahead = "behind" if offset > 0 else "ahead of"
    return f"this machine's clock is {abs(offset):.0f} s {ahead} the swarm's; p2pnode allows for it, but set it right"
