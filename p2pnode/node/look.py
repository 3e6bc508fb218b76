"""Looking around: what peers say of themselves, asked of a few at a time and only while somebody watches.

What they say is shown and never trusted: nothing this node does depends on it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ..network.base import Seconds
from ..wire.errors import NetworkDown, PeerError
from ..wire.ids import PeerId
from ..wire.messages import GetView, ViewExchange, ViewIs
from ..wire.run import RunAccess
from ..wire.status import TrainStatus
from .assemble import Services

if TYPE_CHECKING:  # what learns needs numpy; who only watches does not
    from ..training.progress import TrainProgress

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
        request = GetView(access.tag, access.proof(self._services.identity.peer_id, peer))
        with contextlib.suppress(PeerError, NetworkDown):  # an older node does not know the question
            self.views[peer] = await self._services.calls.ask(peer, request, ViewIs, LOOK_TIMEOUT)


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
