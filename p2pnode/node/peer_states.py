"""For the views: the invite, who is there, what went between whom; from own knowledge, else from what peers say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..discovery.services import Services
from ..discovery.table import Peer
from ..runtime.calls import JobCalls
from ..wire.addresses import Address
from ..wire.ids import PeerId
from ..wire.messages import ViewIs
from ..wire.run import RunAccess, invite
from ..wire.status import Condition, ExchangeRow, Kinship, PeerRow

if TYPE_CHECKING:
    from ..merging.deltaset.entry import EntryFacts
    from ..training.progress import TrainProgress
import asyncio
import contextlib

from ..wire.errors import NetworkDown, PeerError
from ..wire.messages import GetView, ViewExchange
from ..wire.status import TrainStatus
from ..wire.types import Seconds

if TYPE_CHECKING:  # what learns needs numpy; who only watches does not
    from ..training.progress import TrainProgress

MAX_EXCHANGE_ROWS = 2000
OWN_IN_INVITE = 2
OTHERS_IN_INVITE = 2  # bootstrap addresses, for when the own ones cannot be dialled


def invitation(access: RunAccess | None, own: Sequence[str], bootstrap: Sequence[Address]) -> str:
    """The command a friend pastes, or "" while there is nothing to invite to."""
    meeting_points = [address.text for address in bootstrap[:OTHERS_IN_INVITE]]
    addresses = (*own[:OWN_IN_INVITE], *meeting_points)
    return "" if access is None or not addresses else invite(access, addresses)


def peer_row(
    peer: Peer,
    services: Services,
    published: EntryFacts | None,
    view: ViewIs | None,
    kinship: Kinship | None = None,
    head: int | None = None,
) -> PeerRow:
    """One peer. What it published in its entries is newer than what it said when last asked."""
    kin = kinship or Kinship()
    now = services.seams.clock.monotonic()
    said = view or ViewIs()
    return PeerRow(
        id=peer.id,
        name=peer.name,
        role=peer.announcement.role,
        addresses=peer.announcement.addresses,
        present=peer.here,
        heard_seconds_ago=None if peer.heard is None else now - peer.heard,
        latency_ms=None if peer.latency is None else peer.latency * 1000,
        faults=services.reputation.faults_of(peer.id),
        bytes_per_second=peer.rate,
        circle=peer.announcement.circle,
        community=kin.community,
        similarity=kin.similarity,
        chosen=kin.why,
        round=said.round if published is None else published.round,
        loss=_finite(said.loss if published is None else published.loss),
        update_norm=_finite(said.update_norm if published is None else published.update_norm),
        accuracy=_finite(said.accuracy),
        steps_per_second=_finite(said.steps_per_second),
        head=said.head if head is None else head,
        shards=said.shards,
    )


def exchange_rows(
    me: PeerId, train_progress: TrainProgress | None, views: Mapping[PeerId, ViewIs]
) -> tuple[ExchangeRow, ...]:
    """Who exchanged with whom: this node's own, and what peers say of theirs. The latest, when there are too many."""
    own = [] if train_progress is None else list(train_progress.partners.values())
    rows = [*own, *(row for peer, view in views.items() for row in _told(peer, view, me))]
    return tuple(sorted(rows, key=lambda row: row.last)[-MAX_EXCHANGE_ROWS:])


def _told(peer: PeerId, view: ViewIs, me: PeerId) -> Iterator[ExchangeRow]:
    for told in view.exchanges:
        if told.peer not in (peer, me) and math.isfinite(told.last):
            change = _finite(told.loss_change)
            yield ExchangeRow(peer, told.peer, told.last, told.count, told.sent_bytes, told.received_bytes, change)


def condition_in_words(condition: Condition, here: int, in_run: bool, trouble: str, down: str) -> str:
    """Why a node is as it is: `here` peers, what troubles its search, why its network is down."""
    match condition:
        case "connected":
            return f"connected: {here} peer{'' if here == 1 else 's'} here"
        case "alone":
            return "nobody else is here yet" + ("; send them the invite" if in_run else "")
        case "searching":
            return f"no peer answers ({trouble}); still trying" if trouble else "looking for the others"
        case "network down":
            return f"the network daemon is being replaced ({down or 'it stopped'})"
        case _:
            return condition


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


AT_ONCE = 8  # peers asked at a time
AGAIN_AFTER: Seconds = 5.0  # until the same peer is asked again
LOOK_TIMEOUT: Seconds = 3.0
MAX_EXCHANGES = 32  # a node tells of


class StatePoller:
    """One node's knowledge of how others are doing."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._asked: dict[PeerId, Seconds] = {}
        self.views: dict[PeerId, ViewIs] = {}

    async def once(self, access: RunAccess) -> None:
        """Ask those members of the run that were not asked for longest; forget who is gone."""
        now = self._services.seams.clock.monotonic()
        there = [peer.id for peer in self._services.table.learners(access.tag)]
        self.views = {peer: view for peer, view in self.views.items() if peer in there}
        self._asked = {peer: at for peer, at in self._asked.items() if peer in there}
        due = [peer for peer in there if now - self._asked.get(peer, -AGAIN_AFTER) >= AGAIN_AFTER]
        due.sort(key=lambda peer: (self._asked.get(peer, -1.0), peer))
        await asyncio.gather(*(self._ask(peer, access, now) for peer in due[:AT_ONCE]))

    async def _ask(self, peer: PeerId, access: RunAccess, now: Seconds) -> None:
        self._asked[peer] = now
        calls = JobCalls(self._services.calls, access, self._services.identity.peer_id)
        with contextlib.suppress(PeerError, NetworkDown):
            self.views[peer] = await calls.ask(peer, GetView(), ViewIs, LOOK_TIMEOUT)


def view_of(learning: TrainStatus | None, train_progress: TrainProgress | None) -> ViewIs:
    """What this node says of itself to whoever of the run looks."""
    if learning is None or train_progress is None:
        return ViewIs()
    latest = list(train_progress.partners.values())[-MAX_EXCHANGES:]
    return ViewIs(
        round=learning.rounds,
        loss=learning.loss,
        accuracy=learning.accuracy,
        update_norm=learning.update_norm,
        steps_per_second=learning.steps_per_second,
        head=learning.head,
        shards=learning.shards,
        exchanges=tuple(
            ViewExchange(row.other, row.last, row.count, row.sent_bytes, row.received_bytes, row.loss_change)
            for row in latest
        ),
    )
