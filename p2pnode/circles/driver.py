"""Changing circles: carries out what communities/circles.py advises. Only delta sets have circles.

split   the first of a large circle signs who leaves with it (founding.py) and goes; those named hear its new
        name, ask for that word, make the same beginning from their own entries, and follow
join    members of a small circle go over to a larger one, the first of them with a union entry
move    seldom, for a clear gain

Where to go on is prepared beside training, and gone to between two rounds: a single write says where this node is.
Whatever fails before it leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from ..compression.weights import Floats
from ..discovery.services import Services
from ..merging.capabilities import FormsCircles
from ..merging.deltaset.bridges import BridgeDraft
from ..merging.deltaset.set import DeltaSet
from ..merging.deltaset.snapshots import Unsuited
from ..merging.snapshots.driver import Snapshots
from ..merging.snapshots.outline import Snapshot
from ..runtime.calls import JobCalls
from ..similarity.communities import Dendrogram, grow
from ..similarity.driver import PeerSimilarity
from ..training.newcomer_probe import NewcomerProbe
from ..training.progress import TrainProgress
from ..training.trainer import Trainer
from ..wire.errors import LocalProblem
from ..wire.ids import PeerId, short
from ..wire.run import GENESIS
from .advice import Advice, Declared, advise, joinable
from .bridging import Bridging
from .founding import CircleFounding, FoundingRecords, circle_lineage, circle_name, encode_found
from .members import Members
from .splits import SplitWatcher
from .transitions import elsewhere, follow_split, split_off, union_with
from .trust import LEAST_MEMBERS, LONG, CircleTrust, founded_well, worth_a_look

DECIDE_EVERY = 5  # rounds
SPREAD_ROUNDS = 2  # from the word of a split to the split: so long others get the entries it is about
FOLLOW_TRIES = 6  # rounds, for entries that are on their way
ENTER_TRIES = 3  # circles a newcomer asks


@dataclass(frozen=True)
class Going:
    """Where this node goes on as soon as it has done so many rounds."""

    name: str
    found: bytes
    deltas: DeltaSet
    why: str
    after: int = 0
    union: tuple[int, int] | None = None  # members of the circle that joins another, and of that one
    most_loss: float | None = None  # in the first rounds there, where the weights are not our own


@dataclass(frozen=True)
class CircleContext:
    """What a circle driver works with."""

    services: Services
    calls: JobCalls
    members: Members
    policy: FormsCircles
    genesis: bytes  # the run's lineage, from which those of its circles follow
    train_progress: TrainProgress
    trainer: Trainer
    similarity: PeerSimilarity
    snapshots: Snapshots
    bridging: Bridging
    begin_log: Callable[[], int]  # heavy: the number of a log not written to yet; LocalProblem when it cannot be noted
    greet: Callable[[list[PeerId]], Awaitable[None]]  # let peers know at once where this node is now


class CircleDriver:
    """One model's way through its run's circles."""

    def __init__(self, context: CircleContext) -> None:
        services, members = context.services, context.members
        self.founding = FoundingRecords(services, context.calls, members.circle)
        self._services = services
        self._context = context
        self._members = members
        self._circle = members.circle
        self._policy = context.policy
        self._genesis = context.genesis
        self._train_progress = context.train_progress
        self._similarity = context.similarity
        self._trust = CircleTrust(context.trainer, context.train_progress)
        self._splits = SplitWatcher(
            services.identity.peer_id, members, context.policy, context.train_progress, self.founding
        )
        self._going: Going | None = None
        self._to_greet: list[PeerId] = []
        self._round = asyncio.Event()
        self._followed: tuple[CircleFounding, int] | None = None  # a split we are part of, and how often it was tried

    # ---- beside training ----

    def round_done(self) -> None:
        self._round.set()

    async def keep(self) -> None:
        """After each round look who left, and now and then decide; until cancelled."""
        while True:
            await self._round.wait()
            self._round.clear()
            if self._to_greet:
                peers, self._to_greet = self._to_greet, []
                await self._context.greet(peers)
            if self._going is None:
                await self.once()

    async def once(self) -> None:
        """Leave where it was wrong to come; else hear of splits, follow one that names us, or decide."""
        found = await self._splits.hear()
        self._followed = self._followed if found is None else (found, 0)
        regret = self._trust.regret()
        if regret:
            await self._leave(regret)
        elif self._followed is not None:
            await self._follow(*self._followed)
        elif self._train_progress.rounds % DECIDE_EVERY == 0:
            await self._decide()

    async def _follow(self, found: CircleFounding, tries: int) -> None:
        """Make the beginning the founder signed from our own entries; else take it from who is there."""
        policy, name = self._policy, circle_name(found)
        self._followed = (found, tries + 1) if tries < FOLLOW_TRIES else None
        try:
            deltas = await self._services.seams.background(lambda: follow_split(policy, found, self._genesis))
        except ValueError as fault:
            self._followed = None
            self._services.fault(found.founder, f"circle: {fault}")
            return
        why = f"{short(found.founder)} split a circle of {found.group}"
        if deltas is not None:
            self._followed, self._going = None, Going(name, encode_found(found), deltas, why)
        elif self._followed is None:
            await self._prepare(name, why)

    # ---- deciding ----

    async def _decide(self) -> None:
        if not self._similarity.fingerprint:
            return
        circles = self._circles(self._circle.name or GENESIS)
        advice = await self._advise(circles, self._splits.rounds_here, lambda: self._similarity.tree)
        if advice.what == "split":
            await self._split(advice)
        elif advice.what == "join":
            circle = self._where_mates_went(circles) or _named(advice.circle)
            await self._prepare(circle, advice.why, self._members.in_circle())
        elif advice.what == "move":
            await self._prepare(_named(advice.circle), advice.why)

    async def _advise(self, circles: Mapping[PeerId, str], rounds_here: int, tree: Callable[[], Dendrogram]) -> Advice:
        """Advice on the circle to be in, computed in the background: with many circles it takes a while."""
        declared = Declared(self._services.identity.peer_id, circles)
        aim, rng = self._similarity.aim, random.Random(self._services.seams.rng.getrandbits(64))
        return await self._services.seams.background(lambda: advise(declared, tree(), aim, rounds_here, rng))

    def _circles(self, mine: str) -> dict[PeerId, str]:
        """Which learner is where, by its own word: those of bad standing are nowhere, nor who just left our circle."""
        now, reputation = self._services.seams.clock.monotonic(), self._services.reputation
        found = {self._services.identity.peer_id: mine}
        for peer in self._members.present():
            circle = peer.announcement.circle
            left = circle == self._circle.name and peer.id in self._splits.left
            if peer.announcement.fingerprint and not left and not reputation.ignored(peer.id, now):
                found[peer.id] = (circle or GENESIS) if self._trust.enterable(circle) else ""
        return worth_a_look(found, mine)

    def _where_mates_went(self, circles: dict[PeerId, str]) -> str:
        """The circle that one of our small one joined before us, if ours may too, or ""."""
        may = joinable(Declared(self._services.identity.peer_id, circles))
        went = (circles.get(peer, "") for peer in self._splits.mates)
        return next((_named(name) for name in went if name in may), "")

    async def _leave(self, why: str) -> None:
        """It was wrong to come: enter another circle, like a newcomer."""
        self._trust.useless(self._circle.name, LONG)
        advice = await self._advise(self._circles(""), 0, lambda: self._similarity.tree)
        if advice.what == "enter" and await self._prepare(_named(advice.circle), f"left the last one: {why}"):
            self._followed = None

    async def _split(self, advice: Advice) -> None:
        policy, group = self._policy, len(self._members.in_circle()) + 1
        try:
            found, deltas = await self._services.seams.background(
                lambda: split_off(policy, self._services.identity, advice.members, group, self._genesis)
            )
        except ValueError:
            return  # our weights are being mended
        why = f"splits off with {len(advice.members) - 1} others: {advice.why}"
        after = self._train_progress.rounds + SPREAD_ROUNDS
        self._going = Going(circle_name(found), encode_found(found), deltas, why, after)

    async def _prepare(self, name: str, why: str, joining: list[PeerId] | None = None) -> bool:
        """Take a snapshot of another circle, to go on from it; `joining` are those of our circle that go there too."""
        members = [peer for peer, circle in self._circles("").items() if _named(circle) == name and circle]
        found = await self.founding.ask(name, members) if name else None
        taken: list[DeltaSet] = []
        lineage = circle_lineage(self._genesis, name)

        def take(snapshot: Snapshot) -> None:
            taken.append(elsewhere(self._policy, lineage, snapshot))

        alone, take_from = len(members) < LEAST_MEMBERS, self._context.snapshots.take_from
        known = not name or (found is not None and founded_well(found, self._policy.set.rules))
        if not known or not await take_from(members, name, take, on_its_word=alone):
            self._trust.useless(name)
            return False
        most_loss = await self._try(name, taken[-1])
        if most_loss is None:
            return False
        word = b"" if found is None else encode_found(found)
        union = None if joining is None else (len(joining) + 1, len(members))
        self._going = Going(name, word, taken[-1], why, union=union, most_loss=most_loss)
        return True

    async def _try(self, name: str, deltas: DeltaSet) -> float | None:
        """How high the loss may be in a circle; None when its weights do much worse here than our own."""
        trust, policy = self._trust, self._policy
        try:
            return await self._services.seams.compute(lambda: trust.most_loss(deltas.weights(), policy.weights()))
        except Unsuited as error:
            trust.useless(name, LONG)
            text = f"this node does not go to circle {name[:8] or GENESIS}: {error}"
            self._services.events.say("circle", text, warning=True)
            return None

    async def enter(self, look: NewcomerProbe) -> bool:
        """For a newcomer: start in the circle that wants it most; False when that is the run's first, or none.

        Where there is a choice, by what its own data teach.
        """
        for _ in range(ENTER_TRIES):
            circles = self._circles("")
            known = await look.fingerprint() if len({*circles.values()} - {""}) > 1 else b""
            view = self._similarity.newcomer_view(circles, known)
            advice = await self._advise(circles, 0, lambda view=view: grow(view))  # type: ignore[misc]
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
        return self._going is not None and self._train_progress.rounds >= self._going.after

    async def change(self) -> BridgeDraft | None:
        """Between two rounds, when due: go on elsewhere. To be saved; then what to publish there first, if anything."""
        going, self._going = self._going, None
        assert going is not None
        before = self._members.in_circle()
        try:
            incarnation, weights, union = await self._services.seams.compute(lambda: self._pack(going))
        except LocalProblem as problem:
            self._services.events.say("circle", f"this node stays in its circle: {problem}", warning=True)
            return None
        # With no wait between: what this node answers is of the circle it says.
        self._policy.move(going.deltas, weights, incarnation)
        circle, context = self._circle, self._context
        circle.name, circle.found, circle.since = going.name, going.found, self._train_progress.rounds
        context.trainer.reset_optimizer()
        context.bridging.move()
        context.snapshots.offers.move()
        self._splits.moved()
        self._followed = None
        self._trust.came(going.most_loss)
        self._to_greet = [*before, *(peer for peer in self._members.in_circle() if peer not in before)]
        self._services.events.say("circle", f"in circle {going.name[:8] or GENESIS} now: {going.why}")
        return union

    def _pack(self, going: Going) -> tuple[int, Floats, BridgeDraft | None]:
        """Heavy. What is needed there: a log not written to yet, weights, a union. LocalProblem without a disk."""
        incarnation = self._context.begin_log()
        union = None if going.union is None else union_with(self._policy, going.deltas, *going.union)
        return incarnation, going.deltas.weights(), union


def _named(circle: str) -> str:
    """A circle's name as it is announced."""
    return "" if circle == GENESIS else circle
