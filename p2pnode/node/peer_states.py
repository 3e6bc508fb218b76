"""What a node knows of its peers' states: from its own calls, and from what peers answer while somebody watches."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from ..discovery.services import Services
from ..discovery.table import Peer
from ..runtime.calls import JobCalls
from ..wire.addresses import Address, invite_addresses, parse_address
from ..wire.errors import NetworkDown, PeerError, UsageError
from ..wire.ids import PeerId
from ..wire.invite import Invite, invite_command
from ..wire.messages import GetView, JobAnnouncement, ViewIs
from ..wire.run import RunAccess
from ..wire.status import Condition, ExchangeRow, JobState, PeerState
from ..wire.types import Seconds

MAX_EXCHANGE_ROWS = 2000
AT_ONCE = 8  # peers asked at a time
AGAIN_AFTER: Seconds = 5.0  # until the same peer is asked again
ASK_TIMEOUT: Seconds = 3.0
MAX_EXCHANGES = 32  # in an answer
BESIDES = (("observer", "observer"), ("bootstrap", "meeting point"))  # roles that train nothing, and what they are

S = TypeVar("S", bound=msgspec.Struct)


class StatePoller:
    """Asks the members of the run how they get on. Costs calls, so it is used only while somebody watches."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._asked: dict[PeerId, Seconds] = {}
        self.answers: dict[PeerId, ViewIs] = {}

    async def once(self, access: RunAccess) -> None:
        """Ask a few members, those first that were not asked for longest; forget members that are gone."""
        now = self._services.seams.clock.monotonic()
        there = [peer.id for peer in self._services.table.present(access.tag) if peer.announcement.role == "node"]
        self.answers = {peer: answer for peer, answer in self.answers.items() if peer in there}
        self._asked = {peer: at for peer, at in self._asked.items() if peer in there}
        due = [peer for peer in there if now - self._asked.get(peer, -AGAIN_AFTER) >= AGAIN_AFTER]
        due.sort(key=lambda peer: (self._asked.get(peer, -1.0), peer))
        await asyncio.gather(*(self._ask(peer, access, now) for peer in due[:AT_ONCE]))

    async def _ask(self, peer: PeerId, access: RunAccess, now: Seconds) -> None:
        self._asked[peer] = now
        me = self._services.identity.peer_id
        calls = JobCalls(self._services.calls, access, me)
        with contextlib.suppress(PeerError, NetworkDown):
            self.answers[peer] = accepted(peer, me, await calls.ask(peer, GetView(), ViewIs, ASK_TIMEOUT))

    def jobs(self, peer: PeerId) -> Mapping[str, JobState]:
        """What a peer last answered about its jobs."""
        return self.answers[peer].jobs if peer in self.answers else {}


def accepted(peer: PeerId, me: PeerId, answer: ViewIs) -> ViewIs:
    """An answer without numbers that are not finite, and without exchanges the peer cannot know better than we do."""
    jobs = {name: _finite(state) for name, state in answer.jobs.items()}
    own = (row for row in answer.exchanges if row.one == peer and row.other not in (peer, me))
    return ViewIs(jobs, tuple(_finite(row) for row in own if math.isfinite(row.last)))


def _finite(state: S) -> S:
    """The same with None for every float that is not finite, also in what it consists of."""
    return msgspec.structs.replace(state, **{name: _known(v) for name, v in msgspec.structs.asdict(state).items()})


def _known(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, tuple):
        return tuple(map(_known, value))
    return _finite(value) if isinstance(value, msgspec.Struct) else value


def peer_state(peer: Peer, services: Services, jobs: Mapping[str, JobState]) -> PeerState:
    """A peer by what it announced, how calls to it went, and what it last answered about its `jobs`."""
    return PeerState(
        id=peer.id,
        name=peer.name,
        role=peer.announcement.role,
        present=peer.here,
        reached=reached_by(peer.announcement.addresses),
        heard_seconds_ago=None if peer.heard is None else services.seams.clock.monotonic() - peer.heard,
        latency_ms=None if peer.latency is None else peer.latency * 1000,
        bytes_per_second=peer.rate,
        faults=services.reputation.faults_of(peer.id),
        jobs=_with_circles(jobs, peer.announcement.jobs or ()),
    )


def _with_circles(jobs: Mapping[str, JobState], announced: Iterable[JobAnnouncement]) -> dict[str, JobState]:
    """The circles come from the announcement, which is newer than what the peer last answered."""
    circles = {one.job: one.circle for one in announced if one.circle}
    return {
        name: msgspec.structs.replace(jobs.get(name, JobState()), circle=circles.get(name, ""))
        for name in [*jobs, *(name for name in circles if name not in jobs)]
    }


def reached_by(addresses: Sequence[str]) -> str:
    """How a peer with these addresses is reached; "" where it announced none."""
    if not addresses:
        return ""
    return "through a relay" if all("/p2p-circuit" in address for address in addresses) else "directly"


def exchange_rows(own: Iterable[ExchangeRow], answers: Mapping[PeerId, ViewIs]) -> tuple[ExchangeRow, ...]:
    """This node's own exchanges and those that peers reported; the latest, where there are too many."""
    rows = [*own, *(row for answer in answers.values() for row in answer.exchanges)]
    return tuple(sorted(rows, key=lambda row: row.last)[-MAX_EXCHANGE_ROWS:])


def own_invite(access: RunAccess | None, own: Sequence[str], bootstrap: Sequence[Address]) -> str:
    """The command a friend pastes to join; "" while there is no run or no address."""
    readable = []
    for text in own:
        with contextlib.suppress(UsageError):  # the daemon may know protocols that friends cannot read
            readable.append(parse_address(text))
    addresses = invite_addresses(readable, bootstrap)
    return "" if access is None or not addresses else invite_command(Invite(access, addresses))


def roles_in_words(roles: Iterable[str]) -> str:
    """How many other nodes there are, and how many peers that train nothing: "2 other nodes and 1 observer"."""
    counts = Counter(roles)
    nodes = counts["node"]
    looking = [f"{counts[role]} {word}{'' if counts[role] == 1 else 's'}" for role, word in BESIDES if counts[role]]
    return " and ".join([f"{nodes or 'no'} other node{'' if nodes == 1 else 's'}", *looking])


def condition_in_words(condition: Condition, roles: Iterable[str], in_run: bool, trouble: str, down: str) -> str:
    """The reason for a condition: peers of these roles are present, `trouble` hinders the search, `down` ended the
    network.
    """
    match condition:
        case "connected":
            return f"connected: {roles_in_words(roles)} here"
        case "alone":
            return "nobody else is here yet" + ("; send them the invite" if in_run else "")
        case "searching":
            return f"no peer answers ({trouble}); still trying" if trouble else "looking for the others"
        case "network down":
            return f"the network daemon is being replaced ({down or 'it stopped'})"
        case _:
            return condition
