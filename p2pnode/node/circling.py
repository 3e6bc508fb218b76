"""Changing circles: carries out what communities/circles.py advises. Only delta sets have circles.

split   the first of a large circle signs who leaves with it (deltaset/lineage.py) and goes; those named hear its new
        name, ask for that word, make the same beginning from their own entries, and follow
join    members of a small circle go over to a larger one, the first of them with a union entry
move    seldom, for a clear gain

Where to go on is prepared beside training, and gone to between two rounds: a single write says where this node is.
Whatever fails before it leaves everything as it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..communities.circles import REST_ROUNDS, SETTLE_ROUNDS, SPLIT, Advice
from ..deltaset.lineage import Found, circle_lineage, encode_found, is_split_off, name_of, splits
from ..deltaset.set import DeltaSet
from ..errors import LocalProblem
from ..ids import PeerId, short
from ..merge.deltaset import DeltaSetPolicy
from ..merge.setbridge import BridgeDraft
from ..merge.setcircle import elsewhere, follow, split_off, union_with
from ..merge.snapshot import Snapshot
from ..newest import remember
from ..run import GENESIS
from ..weights import Floats
from .circlewords import CircleWords
from .exchanging import Exchanging
from .firstlook import FirstLook
from .parts import Parts
from .saving import Saving
from .standings import Standings
from .trainer import Trainer

DECIDE_EVERY = 5  # rounds
SPREAD_ROUNDS = 2  # from the word of a split to the split: so long others get the entries it is about
FOLLOW_TRIES = 6  # rounds, for entries that are on their way
ENTER_TRIES = 3  # circles a newcomer asks
ASK_TRIES = 3  # rounds, for the word of a circle
NEARLY = 2  # fewer members than a split needs, in the view of one who follows it
MOST_HEARD = 64  # circles remembered


@dataclass(frozen=True)
class Going:
    """Where this node goes on as soon as it has done so many rounds."""

    name: str
    found: bytes
    deltas: DeltaSet
    why: str
    after: int = 0
    union: tuple[int, int] | None = None  # members of the circle that joins another, and of that one


async def tell_nobody(peers: list[PeerId]) -> None:
    """While nobody is there to be told."""


class Circling:
    """One model's way through its run's circles."""

    def __init__(
        self,
        parts: Parts,
        exchanging: Exchanging,
        policy: DeltaSetPolicy,
        genesis: bytes,
        standings: Standings,
        trainer: Trainer,
        saving: Saving,
    ) -> None:
        self.own = exchanging.own
        self.words = CircleWords(parts, exchanging.admission, exchanging.own)
        self.tell: Callable[[list[PeerId]], Awaitable[None]] = tell_nobody  # where this node is now
        self._parts = parts
        self._exchanging = exchanging
        self._policy = policy
        self._genesis = genesis
        self._standings = standings
        self._trainer = trainer
        self._saving = saving
        self._going: Going | None = None
        self._told: list[PeerId] = []
        self._round = asyncio.Event()
        self._mates: dict[PeerId, int] = {}  # in which round each was last seen in our circle
        self._heard: dict[str, PeerId] = {}  # circles that mates went to, to be asked about
        self._asked: dict[str, int] = {}  # how often
        self._founders: dict[str, int] = {}  # the round in which each split our circle
        self._useless: dict[str, int] = {}  # the round in which one could not be entered
        self._followed: tuple[Found, int] | None = None  # a split we are part of, and how often it was tried
        self._left: set[str] = set()  # who split off lately, though it may not have said so yet
        self._stayed = 0  # the round in which others last did

    # ---- beside training ----

    def round_done(self) -> None:
        self._round.set()

    async def keep(self) -> None:
        """After each round look who left, and now and then decide; until cancelled."""
        while True:
            await self._round.wait()
            self._round.clear()
            if self._told:
                told, self._told = self._told, []
                await self.tell(told)
            if self._going is None:
                await self.once()

    async def once(self) -> None:
        """Hear of splits, follow one that names us, else decide."""
        self._look()
        for name, peer in list(self._heard.items()):
            del self._heard[name]
            await self._hear(name, peer)
        if self._followed is not None:
            await self._follow(*self._followed)
        elif self._standings.rounds % DECIDE_EVERY == 0:
            await self._decide()

    @property
    def _rounds_here(self) -> int:
        """Since our circle last changed: we came, or others left."""
        return self._standings.rounds - max(self.own.since, self._stayed)

    def _look(self) -> None:
        """Who of our circle is in another one now?"""
        now, mine = self._standings.rounds, self.own.name
        for peer in self._parts.table.present(self._exchanging.admission.access.tag):
            circle = peer.announcement.circle
            if circle == mine:
                self._mates[peer.id] = now
            elif peer.id in self._mates and is_split_off(circle) and self._asked.get(circle, 0) < ASK_TRIES:
                self._heard[circle] = peer.id
        if self._rounds_here >= 2 * SETTLE_ROUNDS:
            self._left.clear()
        self._mates = {peer: seen for peer, seen in self._mates.items() if now - seen <= 2 * SETTLE_ROUNDS}

    async def _hear(self, name: str, peer: PeerId) -> None:
        """One of our circle is in another: did it split off, and are we part of that?"""
        found = await self.words.ask(name, [peer])
        remember(self._asked, name, self._asked.get(name, 0) + 1 if found is None else ASK_TRIES, MOST_HEARD)
        if found is None or not splits(found, self._policy.set.rules):
            return
        me, mates = self._parts.identity.peer_id, {*self._mates}
        large = len(mates) + 1 >= SPLIT - NEARLY and found.founder in mates
        lately = self.own.since > 0 and self._standings.rounds - self.own.since < SETTLE_ROUNDS // 2
        again = self._standings.rounds - self._founders.get(found.founder, -REST_ROUNDS) < REST_ROUNDS
        if lately or again or not large:
            return  # nobody splits a circle that need not be split, or again and again
        remember(self._founders, found.founder, self._standings.rounds, MOST_HEARD)
        self._left |= set(found.members)
        self._stayed = self._standings.rounds
        if me in found.members:
            self._followed = found, 0

    async def _follow(self, found: Found, tries: int) -> None:
        """Make the beginning the founder signed from our own entries; else take it from who is there."""
        policy, name = self._policy, name_of(found)
        self._followed = (found, tries + 1) if tries < FOLLOW_TRIES else None
        try:
            deltas = await self._parts.world.aside(lambda: follow(policy, found, self._genesis))
        except ValueError as fault:
            self._followed = None
            self._parts.fault(found.founder, f"circle: {fault}")
            return
        why = f"{short(found.founder)} split a circle of {found.group}"
        if deltas is not None:
            self._followed, self._going = None, Going(name, encode_found(found), deltas, why)
        elif self._followed is None:
            await self._prepare(name, why)

    # ---- deciding ----

    async def _decide(self) -> None:
        if not self._exchanging.likeness.fingerprint:
            return
        advice = await self._exchanging.likeness.advise(self._circles(self.own.name or GENESIS), self._rounds_here)
        if advice.what == "split":
            await self._split(advice)
        elif advice.what == "join":
            circle = self._where_mates_went() or _named(advice.circle)
            await self._prepare(circle, advice.why, self._exchanging.members())
        elif advice.what == "move":
            await self._prepare(_named(advice.circle), advice.why)

    def _circles(self, mine: str) -> dict[PeerId, str]:
        """Which learner is where, by its own word: those of bad standing are nowhere, nor who just left our circle."""
        now, standing = self._parts.world.clock.monotonic(), self._parts.standing
        found = {self._parts.identity.peer_id: mine}
        for peer in self._parts.table.present(self._exchanging.admission.access.tag):
            circle = peer.announcement.circle
            left = circle == self.own.name and peer.id in self._left
            if peer.announcement.fingerprint and not left and not standing.ignored(peer.id, now):
                found[peer.id] = (circle or GENESIS) if self._enterable(circle) else ""
        return found

    def _enterable(self, circle: str) -> bool:
        tried = self._useless.get(circle)
        lately = tried is not None and self._standings.rounds - tried < REST_ROUNDS
        return (not circle or is_split_off(circle)) and not lately

    def _where_mates_went(self) -> str:
        """The circle that one of our small one joined before us, or ""."""
        peers = (self._parts.table.get(peer) for peer in self._mates)
        went = [peer.announcement.circle for peer in peers if peer is not None and peer.here]
        return next((name for name in went if is_split_off(name) and name != self.own.name), "")

    async def _split(self, advice: Advice) -> None:
        policy, group = self._policy, len(self._exchanging.members()) + 1
        try:
            found, deltas = await self._parts.world.aside(
                lambda: split_off(policy, advice.members, group, self._genesis)
            )
        except ValueError:
            return  # our weights are being mended
        why = f"splits off with {len(advice.members) - 1} others: {advice.why}"
        after = self._standings.rounds + SPREAD_ROUNDS
        self._going = Going(name_of(found), encode_found(found), deltas, why, after)

    async def _prepare(self, name: str, why: str, joining: list[PeerId] | None = None) -> bool:
        """Take a snapshot of another circle, to go on from it; `joining` are those of our circle that go there too."""
        members = [peer for peer, circle in self._circles("").items() if _named(circle) == name and circle]
        found = await self.words.ask(name, members) if name else None
        taken: list[DeltaSet] = []
        lineage = circle_lineage(self._genesis, name)

        def take(snapshot: Snapshot) -> None:
            taken.append(elsewhere(self._policy, lineage, snapshot))

        known = found is not None or not name
        if not known or not await self._exchanging.snapshots.take_from(members, name, take):
            remember(self._useless, name, self._standings.rounds, MOST_HEARD)
            return False
        word = b"" if found is None else encode_found(found)
        union = None if joining is None else (len(joining) + 1, len(members))
        self._going = Going(name, word, taken[-1], why, union=union)
        return True

    async def enter(self, look: FirstLook) -> bool:
        """For a newcomer: start in the circle that wants it most; False when that is the run's first, or none.

        Where there is a choice, by what its own data teach.
        """
        likeness = self._exchanging.likeness
        for _ in range(ENTER_TRIES):
            circles = self._circles("")
            known = await look.fingerprint() if len({*circles.values()} - {""}) > 1 else b""
            advice = await likeness.advise_newcomer(circles, known)
            if advice.what != "enter" or advice.circle == GENESIS:
                return False
            if await self._prepare(advice.circle, advice.why):
                await self.change()
                return True
        return False

    # ---- going ----

    @property
    def due(self) -> bool:
        """Whether a change of circles is prepared."""
        return self._going is not None and self._standings.rounds >= self._going.after

    async def change(self) -> BridgeDraft | None:
        """Between two rounds, when due: go on elsewhere. To be saved; then what to publish there first, if anything."""
        going, self._going = self._going, None
        assert going is not None
        before = self._exchanging.members()
        try:
            incarnation, weights, union = await self._parts.world.compute(lambda: self._pack(going))
        except LocalProblem as problem:
            self._parts.events.say("circle", f"this node stays in its circle: {problem}", warning=True)
            return None
        # With no wait between: what this node answers is of the circle it says.
        self._policy.move(going.deltas, weights, incarnation)
        self.own.name, self.own.found, self.own.since = going.name, going.found, self._standings.rounds
        self._trainer.reset_optimizer()
        self._exchanging.bridging.move()
        self._exchanging.snapshots.offers.move()
        self._mates, self._heard, self._followed, self._left = {}, {}, None, set()
        self._founders.clear()  # of the circle that is left; who split it may split the new one
        self._told = [*before, *(peer for peer in self._exchanging.members() if peer not in before)]
        self._parts.events.say("circle", f"in circle {going.name[:8] or GENESIS} now: {going.why}")
        return union

    def _pack(self, going: Going) -> tuple[int, Floats, BridgeDraft | None]:
        """Heavy. What is needed there: a log not written to yet, weights, a union. LocalProblem without a disk."""
        incarnation = self._saving.begin_log()
        union = None if going.union is None else union_with(self._policy, going.deltas, *going.union)
        return incarnation, going.deltas.weights(), union


def _named(circle: str) -> str:
    """A circle's name as it is announced."""
    return "" if circle == GENESIS else circle
