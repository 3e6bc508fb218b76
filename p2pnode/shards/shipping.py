"""Passes shards on: from time to time one that this node holds goes to the peer that can use it most.

When a shipment is due, a few peers are asked what data they need; nobody announces this to all. Peers may lie: their
label counts are bounded where they are used (route.py), and a peer that takes shards but never reports a visit gets no
more. How much is sent depends on the rate of the link.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..discovery.link_rate import LinkRate
from ..discovery.services import Services
from ..runtime.calls import JobCalls
from ..similarity.driver import PeerSimilarity
from ..wire.errors import NetworkDown, PeerError
from ..wire.ids import PeerId
from ..wire.types import Seconds
from .driver import ShardDriver
from .messages import MAX_MARKS_BYTES, GetNeeds, NeedsAre
from .route import RouteRules, ShardCandidate, ShardView, Shipment, choose_shipment

EVERY_ROUNDS = 4
SELDOM_ROUNDS = 32  # while arriving shards teach little
LITTLE = 0.25  # a model learns little from a shard of which it does not know more than this
CANDIDATES = 4
SHARE = 0.25  # of what the link could carry since the last shipment
FIRST_BYTES = 1 << 20  # while the rate of the link is not known
ASK_TIMEOUT: Seconds = 5.0
MARK_BYTES = 8  # of a shard's id
REMEMBERED = 64  # shards given to each peer


class ShardUse(Protocol):
    """What is known about training on shards: the basis for choosing which shard goes to which peer."""

    taught: list[float]  # for the latest shards received: the share that the model did not know yet

    def view(self, shard: str) -> ShardView:
        """What training knows about a shard."""
        ...

    def visited(self) -> tuple[list[str], list[str]]:
        """The shards here, apart by whether this node's model has visited them."""
        ...

    def label_counts(self) -> NDArray[np.float64] | None:
        """Samples of each label, as reported to peers; None when there is nothing to report."""
        ...


class ShardShipping:
    """The shipments of one node. Call `after_round` after every round; `run` lasts as long as the node."""

    def __init__(
        self,
        services: Services,
        calls: JobCalls,
        shard_driver: ShardDriver,
        use: ShardUse,
        similarity: PeerSimilarity,
        link: LinkRate,
    ) -> None:
        self.copies = 0
        self.moves = 0
        self.sent_bytes = 0
        self.rules = RouteRules()
        self.reasons: dict[str, str] = {}  # why each shard was last sent
        self._services = services
        self._calls = calls
        self._shard_driver = shard_driver
        self._use = use
        self._similarity = similarity
        self._link = link
        self._now = asyncio.Event()
        self._next_round = EVERY_ROUNDS
        self._last: Seconds = services.seams.clock.monotonic()
        self._given: dict[PeerId, list[str]] = {}  # to each peer, as far as it has not reported a visit

    # ---- when ----

    def after_round(self, round: int) -> None:
        """Pass a shard on if one is due after this round."""
        if round >= self._next_round:
            self._next_round = round + self.pause()
            self._now.set()

    def pause(self) -> int:
        """Rounds between shipments: more of them when arriving shards teach little."""
        taught = self._use.taught
        return SELDOM_ROUNDS if len(taught) >= 4 and float(np.mean(taught)) < LITTLE else EVERY_ROUNDS

    def budget(self) -> int:
        """How many bytes may be sent now, by the rate of the link."""
        rate, clock = self._link.rate, self._services.seams.clock
        return FIRST_BYTES if rate is None else int(SHARE * rate * (clock.monotonic() - self._last))

    async def run(self) -> None:
        """Pass shards on until cancelled."""
        while True:
            await self._now.wait()
            self._now.clear()
            await self.once()

    # ---- which shard to which peer ----

    async def once(self) -> Shipment | None:
        """Choose one shipment and carry it out; None when nothing should travel or the receiver declined."""
        members = self._shard_driver.members()
        if not self._shard_driver.held() or not members:
            return None
        seams = self._services.seams
        asked = seams.rng.sample(members, min(CANDIDATES, len(members)))
        peers = [view for view in await asyncio.gather(*map(self._ask, asked)) if view is not None]
        shards = [self._use.view(shard) for shard in self._shard_driver.held()]  # some may have gone meanwhile
        budget, room = self.budget(), self._shard_driver.room.free_bytes
        shipment = choose_shipment(shards, peers, budget, self._services.clock.now(), seams.rng, room, rules=self.rules)
        if shipment is None:
            return None
        self._last = seams.clock.monotonic()
        return shipment if await self._give(shipment) else None

    async def _give(self, shipment: Shipment) -> bool:
        self.reasons[shipment.shard] = shipment.reason
        if not await self._shard_driver.give(shipment):
            return False
        self.moves += shipment.move
        self.copies += not shipment.move
        self.sent_bytes += shipment.size_bytes
        given = self._given.setdefault(PeerId(shipment.peer), [])
        given.append(shipment.shard)
        del given[:-REMEMBERED]
        self._services.events.say("shipped", f"shard {shipment.shard[:8]}: {shipment.reason}")
        return True

    async def _ask(self, peer: PeerId) -> ShardCandidate | None:
        """What one peer says it needs; None when it does not answer."""
        try:
            needs = await self._calls.ask(peer, GetNeeds(), NeedsAre, ASK_TIMEOUT)
        except (PeerError, NetworkDown):
            return None
        return self._candidate(peer, needs)

    def _candidate(self, peer: PeerId, needs: NeedsAre) -> ShardCandidate:
        visited, waiting = marks_in(needs.visited), marks_in(needs.waiting)
        given = [shard for shard in self._given.get(peer, []) if pass_mark(shard) not in visited]
        self._given[peer] = given
        here = visited | waiting
        return ShardCandidate(
            peer,
            peer,
            np.array(needs.counts, np.float64) if needs.counts else None,
            self._similarity.similarity_to(peer),
            frozenset(shard for shard in self._shard_driver.held() if pass_mark(shard) in here),
            needs.room_bytes,
            len(given),
            self._services.table.name_of(peer),
        )

    # ---- for peers ----

    def needs(self, peer: PeerId, request: GetNeeds) -> NeedsAre:
        """What data this node needs."""
        visited, waiting = self._use.visited()
        counts = self._use.label_counts()
        return NeedsAre(
            self._shard_driver.room.free_bytes,
            () if counts is None else tuple(int(count) for count in counts),
            marks_of(visited),
            marks_of(waiting),
        )


def pass_mark(shard: str) -> bytes:
    """The beginning of a shard's id."""
    return bytes.fromhex(shard)[:MARK_BYTES]


def marks_of(shards: list[str]) -> bytes:
    """Marks of some shards; of the latest, when they are too many for a message."""
    return b"".join(map(pass_mark, shards[-(MAX_MARKS_BYTES // MARK_BYTES) :]))


def marks_in(marks: bytes) -> set[bytes]:
    """What `marks_of` joined."""
    return {marks[start : start + MARK_BYTES] for start in range(0, len(marks), MARK_BYTES)}
