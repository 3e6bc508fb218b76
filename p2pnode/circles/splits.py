"""Watches for splits of this node's circle that others make, and finds those that name this node."""

from __future__ import annotations

import asyncio

from ..merging.capabilities import FormsCircles
from ..training.progress import TrainProgress
from ..wire.bounded import put_bounded
from ..wire.ids import PeerId
from .advice import REST_ROUNDS, SETTLE_ROUNDS
from .founding import CircleFounding, FoundingRecords, is_split_off, splits
from .members import Members
from .trust import is_fair

ASK_TRIES = 3  # rounds in which a circle's founding record is asked for
MOST_HEARD = 64  # circles remembered
MOST_FOLLOWED = 2  # splits in REST_ROUNDS: a part that is still large splits again


class SplitWatcher:
    """Knows who left this node's circle."""

    def __init__(
        self,
        me: PeerId,
        members: Members,
        policy: FormsCircles,
        train_progress: TrainProgress,
        founding: FoundingRecords,
    ) -> None:
        self.mates: dict[PeerId, int] = {}  # in which round each was last seen in our circle
        self.left: set[str] = set()  # peers that split off recently, though they may not have announced it yet
        self._me = me
        self._members = members
        self._circle = members.circle
        self._policy = policy
        self._train_progress = train_progress
        self._founding = founding
        self._stayed = 0  # the round in which others last left
        self._asked: dict[str, int] = {}  # how often each circle's record was asked for
        self._founders: dict[str, int] = {}  # the round in which each split a circle of ours, without us
        self._followed: list[int] = []  # the rounds of splits that we were part of

    @property
    def rounds_here(self) -> int:
        """Rounds since this circle last changed: this node came, or others left."""
        return self._train_progress.rounds - max(self._circle.since, self._stayed)

    def moved(self) -> None:
        """This node is in another circle now."""
        self.mates, self.left = {}, set()

    async def hear(self) -> CircleFounding | None:
        """Ask about the circles that former members are in now; returns a split that names this node, if any."""
        records = await asyncio.gather(*(self._hear(name, peer) for name, peer in self._look().items()))
        return next((found for found in records if found is not None), None)

    def _look(self) -> dict[str, PeerId]:
        """The circles that former members went to, with one member each, as far as they still need asking about."""
        now, mine = self._train_progress.rounds, self._circle.name
        heard: dict[str, PeerId] = {}
        for peer in self._members.present():
            circle = self._members.announced(peer).circle
            if circle == mine:
                self.mates[peer.id] = now
            elif peer.id in self.mates and is_split_off(circle) and self._asked.get(circle, 0) < ASK_TRIES:
                heard[circle] = peer.id
        if self.rounds_here >= 2 * SETTLE_ROUNDS:
            self.left.clear()
        self.mates = {peer: seen for peer, seen in self.mates.items() if now - seen <= 2 * SETTLE_ROUNDS}
        return heard

    async def _hear(self, name: str, peer: PeerId) -> CircleFounding | None:
        """Ask for a circle's founding record; returns it when it is a fair split of ours that names this node."""
        found = await self._founding.ask(name, [peer])
        put_bounded(self._asked, name, self._asked.get(name, 0) + 1 if found is None else ASK_TRIES, MOST_HEARD)
        if found is None or not splits(found, self._policy.set.rules) or not is_fair(found, self.mates):
            return None
        now, named = self._train_progress.rounds, self._me in found.members
        moved_recently = self._circle.since > 0 and now - self._circle.since < SETTLE_ROUNDS // 2
        again = now - self._founders.get(found.founder, -REST_ROUNDS) < REST_ROUNDS
        self._followed = [number for number in self._followed if now - number < REST_ROUNDS]
        if moved_recently or again or (named and len(self._followed) >= MOST_FOLLOWED):
            return None  # nobody is split off again and again
        self.left |= set(found.members)
        self._stayed = now
        if named:
            self._followed.append(now)
            return found
        put_bounded(self._founders, found.founder, now, MOST_HEARD)
        return None
