"""The parts of one node that its pieces share, made once."""

from __future__ import annotations

from dataclasses import dataclass

from ..config.options import NO_LIMITS, GuestSettings
from ..discovery.records import Records
from ..discovery.registry import Acquaintances
from ..discovery.reputation import Standing
from ..discovery.swarm_time import SwarmClock
from ..discovery.table import PeerTable
from ..network.base import Network
from ..runtime.calls import Calls
from ..runtime.events import Events
from ..runtime.limiter import Restraint
from ..runtime.seams import World
from ..wire.ids import Identity, PeerId


@dataclass(frozen=True)
class Parts:
    identity: Identity
    world: World
    network: Network
    events: Events
    clock: SwarmClock
    table: PeerTable
    standing: Standing
    calls: Calls
    records: Records
    acquaintances: Acquaintances
    restraint: Restraint

    def fault(self, peer: str, why: str) -> None:
        """A peer did something wrong: it costs it standing."""
        self.standing.fault(peer, why, self.world.clock.monotonic())


def make_parts(identity: Identity, world: World, network: Network, guest: GuestSettings = NO_LIMITS) -> Parts:
    events = Events(world.clock)
    clock = SwarmClock(world.clock, lambda offset: events.say("clock", _clock_warning(offset), warning=True))
    table = PeerTable(identity.peer_id)
    standing = Standing()
    calls = Calls(network, world.clock, clock, table, standing)
    records = Records(network, identity, clock.now)

    def fault(peer: PeerId, why: str) -> None:
        standing.fault(peer, why, world.clock.monotonic())

    acquaintances = Acquaintances(table, records, network, clock, events, world.storage, fault)
    restraint = Restraint(world, events, calls.allowance, guest)
    return Parts(identity, world, network, events, clock, table, standing, calls, records, acquaintances, restraint)


def _clock_warning(offset: float) -> str:
    ahead = "behind" if offset > 0 else "ahead of"
    return f"this machine's clock is {abs(offset):.0f} s {ahead} the swarm's; p2pnode allows for it, but set it right"
