"""Splits of our circle that others make: who is in another one now, by which word, and are we part of it?"""

from __future__ import annotations

import asyncio

from ..merging.capabilities import FormsCircles
from ..training.progress import TrainProgress
from ..wire.bounded import keep_newest
from ..wire.ids import PeerId
from .advice import REST_ROUNDS, SETTLE_ROUNDS
from .founding import CircleFounding, FoundingRecords, is_split_off, splits
from .members import Members
from .trust import is_fair

ASK_TRIES = 3  # rounds, for the word of a circle
MOST_HEARD = 64  # circles remembered
MOST_FOLLOWED = 2  # splits in REST_ROUNDS: what is still large after one splits again


class SplitWatcher:
    """What one model's circle loses to others."""

    def __init__(
        self,
        me: PeerId,
        members: Members,
        policy: FormsCircles,
        train_progress: TrainProgress,
        founding: FoundingRecords,
    ) -> None:
        self.mates: dict[PeerId, int] = {}  # in which round each was last seen in our circle
        self.left: set[str] = set()  # who split off lately, though it may not have said so yet
        self._me = me
        self._members = members
        self._circle = members.circle
        self._policy = policy
        self._train_progress = train_progress
        self._founding = founding
        self._stayed = 0  # the round in which others last left
        self._asked: dict[str, int] = {}  # how often about each circle
        self._founders: dict[str, int] = {}  # the round in which each split a circle of ours, without us
        self._followed: list[int] = []  # the rounds of splits that we were part of

    @property
    def rounds_here(self) -> int:
        """Since our circle last changed: we came, or others left."""
        return self._train_progress.rounds - max(self._circle.since, self._stayed)

    def moved(self) -> None:
        """Our circle is another now."""
        self.mates, self.left = {}, set()

    async def hear(self) -> CircleFounding | None:
        """Ask about the circles that mates are in now, all at once; a split that names us, if there is one."""
        found = await asyncio.gather(*(self._hear(name, peer) for name, peer in self._look().items()))
        return next((word for word in found if word is not None), None)

    def _look(self) -> dict[str, PeerId]:
        """Circles that mates went to, to be asked about, and one in each."""
        now, mine = self._train_progress.rounds, self._circle.name
        heard: dict[str, PeerId] = {}
        for peer in self._members.present():
            circle = peer.announcement.circle
            if circle == mine:
                self.mates[peer.id] = now
            elif peer.id in self.mates and is_split_off(circle) and self._asked.get(circle, 0) < ASK_TRIES:
                heard[circle] = peer.id
        if self.rounds_here >= 2 * SETTLE_ROUNDS:
            self.left.clear()
        self.mates = {peer: seen for peer, seen in self.mates.items() if now - seen <= 2 * SETTLE_ROUNDS}
        return heard

    async def _hear(self, name: str, peer: PeerId) -> CircleFounding | None:
        """One of our circle is in another: did it split off, and are we part of that?"""
        found = await self._founding.ask(name, [peer])
        keep_newest(self._asked, name, self._asked.get(name, 0) + 1 if found is None else ASK_TRIES, MOST_HEARD)
        if found is None or not splits(found, self._policy.set.rules) or not is_fair(found, self.mates):
            return None
        now, named = self._train_progress.rounds, self._me in found.members
        lately = self._circle.since > 0 and now - self._circle.since < SETTLE_ROUNDS // 2
        again = now - self._founders.get(found.founder, -REST_ROUNDS) < REST_ROUNDS
        self._followed = [number for number in self._followed if now - number < REST_ROUNDS]
        if lately or again or (named and len(self._followed) >= MOST_FOLLOWED):
            return None  # nobody is split off again and again
        self.left |= set(found.members)
        self._stayed = now
        if named:
            self._followed.append(now)
            return found
        keep_newest(self._founders, found.founder, now, MOST_HEARD)
        return None
