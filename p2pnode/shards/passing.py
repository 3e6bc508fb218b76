"""Passing shards on: now and then one that is held here goes to the peer it does most for, within what the link bears.

What candidates could do with is asked of a few of them when a shard is due, never told to all. It is their word: label
counts are bounded where they are weighed, and whoever takes and never trains gets no more.
"""

from __future__ import annotations

import asyncio

import numpy as np

from ..discovery.link_rate import LinkRate
from ..discovery.services import Services
from ..jobs.train.shard_work import ShardTraining
from ..runtime.calls import JobCalls
from ..similarity.driver import PeerSimilarity
from ..wire.errors import NetworkDown, PeerError
from ..wire.ids import PeerId
from ..wire.types import Seconds
from .driver import ShardDriver
from .messages import MAX_SHARD_MARKS_BYTES, GetNeeds, NeedsAre
from .route import RouteRules, ShardCandidate, Shipment, choose_shipment

EVERY_ROUNDS = 4
SELDOM_ROUNDS = 32  # while what comes in teaches little
LITTLE = 0.25  # what a model does not know of a shard, up to which it learns little from it
CANDIDATES = 4
SHARE = 0.25  # of what the link bears since the last shipment
FIRST_BYTES = 1 << 20  # while the link's rate is not known
ASK_TIMEOUT: Seconds = 5.0
MARK_BYTES = 8  # of a shard's id
REMEMBERED = 64  # shards given to a peer


class Passing:
    """One node's shipments. `soon` after every round; `keep` for as long as the node lives."""

    def __init__(
        self,
        services: Services,
        calls: JobCalls,
        shard_driver: ShardDriver,
        work: ShardTraining,
        likeness: PeerSimilarity,
        link: LinkRate,
    ) -> None:
        self.copies = 0
        self.moves = 0
        self.sent_bytes = 0
        self.rules = RouteRules()
        self._services = services
        self._calls = calls
        self._shard_driver = shard_driver
        self._work = work
        self._likeness = likeness
        self._link = link
        self._now = asyncio.Event()
        self._next_round = EVERY_ROUNDS
        self._last: Seconds = services.seams.clock.monotonic()
        self._given: dict[PeerId, list[str]] = {}  # to each peer, of which it has not said that it trained on them

    # ---- when ----

    def soon(self, round: int) -> None:
        """A round is over."""
        if round >= self._next_round:
            self._next_round = round + self.pause()
            self._now.set()

    def pause(self) -> int:
        """Rounds between shipments: the more, the less the shards that come in still teach."""
        taught = self._work.taught
        return SELDOM_ROUNDS if len(taught) >= 4 and float(np.mean(taught)) < LITTLE else EVERY_ROUNDS

    def budget(self) -> int:
        """Bytes that a shipment may have now, by what the link bears."""
        rate, clock = self._link.rate, self._services.seams.clock
        return FIRST_BYTES if rate is None else int(SHARE * rate * (clock.monotonic() - self._last))

    async def keep(self) -> None:
        """Pass shards on until cancelled."""
        while True:
            await self._now.wait()
            self._now.clear()
            await self.once()

    # ---- what to whom ----

    async def once(self) -> Shipment | None:
        """Choose one shipment and see it through; None when nothing should travel, or nobody took it."""
        members = self._shard_driver.members()
        if not self._shard_driver.held() or not members:
            return None
        seams = self._services.seams
        asked = seams.rng.sample(members, min(CANDIDATES, len(members)))
        peers = [view for view in await asyncio.gather(*map(self._ask, asked)) if view is not None]
        shards = [self._work.view(shard) for shard in self._shard_driver.held()]  # as it is after the asking
        budget, room = self.budget(), self._shard_driver.free_bytes
        shipment = choose_shipment(shards, peers, budget, self._services.clock.now(), seams.rng, room, rules=self.rules)
        if shipment is None:
            return None
        self._last = seams.clock.monotonic()
        return shipment if await self._give(shipment) else None

    async def _give(self, shipment: Shipment) -> bool:
        self._work.shipped[shipment.shard] = shipment.why
        if not await self._shard_driver.give(shipment):
            return False
        self.moves += shipment.move
        self.copies += not shipment.move
        self.sent_bytes += shipment.size_bytes
        given = self._given.setdefault(PeerId(shipment.peer), [])
        given.append(shipment.shard)
        del given[:-REMEMBERED]
        self._services.events.say("shipped", f"shard {shipment.shard[:8]}: {shipment.why}")
        return True

    async def _ask(self, peer: PeerId) -> ShardCandidate | None:
        """What one peer says it could do with; None when it does not."""
        try:
            told = await self._calls.ask(peer, GetNeeds(), NeedsAre, ASK_TIMEOUT)
        except (PeerError, NetworkDown):
            return None
        return self._view(peer, told)

    def _view(self, peer: PeerId, told: NeedsAre) -> ShardCandidate:
        visited, waiting = marks_in(told.visited), marks_in(told.waiting)
        given = [shard for shard in self._given.get(peer, []) if pass_mark(shard) not in visited]
        self._given[peer] = given
        here = visited | waiting
        return ShardCandidate(
            peer,
            peer,
            np.array(told.counts, np.float64) if told.counts else None,
            self._likeness.similarity_to(peer),
            frozenset(shard for shard in self._shard_driver.held() if pass_mark(shard) in here),
            told.room_bytes,
            len(given),
        )

    # ---- for peers ----

    def needs(self, peer: PeerId, request: GetNeeds) -> NeedsAre:
        """What this node could do with; PeerRefused when the peer may not ask."""
        visited, waiting = self._work.visited()
        counts = self._work.told_counts()
        return NeedsAre(
            self._shard_driver.free_bytes,
            () if counts is None else tuple(int(count) for count in counts),
            marks_of(visited),
            marks_of(waiting),
        )


def pass_mark(shard: str) -> bytes:
    """The beginning of a shard's id."""
    return bytes.fromhex(shard)[:MARK_BYTES]


def marks_of(shards: list[str]) -> bytes:
    """The latest of them, when they are too many to tell."""
    return b"".join(map(pass_mark, shards[-(MAX_SHARD_MARKS_BYTES // MARK_BYTES) :]))


def marks_in(marks: bytes) -> set[bytes]:
    return {marks[start : start + MARK_BYTES] for start in range(0, len(marks), MARK_BYTES)}
