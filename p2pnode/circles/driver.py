"""Changes circles as advice.py recommends. Only delta sets have circles.

split   the first member of a large circle signs a founding record (founding.py) and leaves; the members it names hear
        the new circle's name, ask for the record, compute the same first set from their own entries, and follow
join    the members of a small circle move to a larger one, the first of them with a union entry
move    a single node moves, rarely and for a clear gain

A change is prepared while training goes on and made between two rounds: a single write says where this node is.
Whatever fails before that leaves everything as it was.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

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
from ..training.progress import TrainProgress
from ..wire.errors import LocalProblem
from ..wire.ids import PeerId
from ..wire.run import GENESIS
from .advice import Advice, Declared, advise, joinable
from .bridging import Bridging
from .founding import CircleFounding, FoundingRecords, circle_lineage, circle_name, encode_found
from .members import Members
from .splits import SplitWatcher
from .transitions import follow_split, set_from_snapshot, split_off, union_with
from .trust import LEAST_MEMBERS, LONG, CircleJudge, CircleTrust, is_valid_founding, without_tiny_circles

DECIDE_EVERY = 5  # rounds
SPREAD_ROUNDS = 2  # between signing a split and leaving, in which others receive the entries it is about
FOLLOW_TRIES = 6  # rounds to wait for entries that are on their way
ENTER_TRIES = 3  # circles that a newcomer tries


@dataclass(frozen=True)
class PreparedChange:
    """The circle where this node goes on, from round `after`."""

    name: str
    found: bytes
    deltas: DeltaSet
    reason: str
    after: int = 0
    union: tuple[int, int] | None = None  # members of the joining circle, and of the joined one
    loss_limit: float | None = None  # for the first rounds there; None: this node keeps its weights


@dataclass(frozen=True)
class CircleContext:
    """What a circle driver works with."""

    services: Services
    calls: JobCalls
    members: Members
    policy: FormsCircles
    genesis: bytes  # the run's lineage, from which those of its circles follow
    train_progress: TrainProgress
    judge: CircleJudge
    similarity: PeerSimilarity
    snapshots: Snapshots
    bridging: Bridging
    begin_log: Callable[[], int]  # heavy: the number of a log not written to yet; LocalProblem when it cannot be noted
    greet: Callable[[list[PeerId]], Awaitable[None]]  # let peers know at once where this node is now
    compared: bool = True  # only members whose models are compared count: others have nothing to train on


class NewcomerFingerprint(Protocol):
    """What a newcomer knows of its own data before it trains with others."""

    async def fingerprint(self) -> bytes:
        """The fingerprint of a model that only this node's data have trained; empty when there is none."""
        ...


class CircleDriver:
    """Moves one model through the circles of its run."""

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
        self._trust = CircleTrust(context.judge, context.train_progress)
        self._splits = SplitWatcher(
            services.identity.peer_id, members, context.policy, context.train_progress, self.founding
        )
        self._prepared: PreparedChange | None = None
        self._to_greet: list[PeerId] = []
        self._round = asyncio.Event()
        self._followed: tuple[CircleFounding, int] | None = None  # a split that names this node, and tries so far

    # ---- while training goes on ----

    def round_done(self) -> None:
        """A round has ended, and no change of circles is under way."""
        self._round.set()

    async def run(self) -> None:
        """Look after each round who left, and decide every few rounds, until cancelled."""
        while True:
            await self._round.wait()
            self._round.clear()
            if self._to_greet:
                peers, self._to_greet = self._to_greet, []
                await self._context.greet(peers)
            if self._prepared is None:
                await self.once()

    async def once(self) -> None:
        """Leave a circle that does harm; else follow a split that names this node, or decide what to do."""
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
        """Compute the set that the founder signed from our own entries; after some tries take a snapshot instead."""
        policy, name = self._policy, circle_name(found)
        self._followed = (found, tries + 1) if tries < FOLLOW_TRIES else None
        try:
            deltas = await self._services.seams.background(lambda: follow_split(policy, found, self._genesis))
        except ValueError as fault:
            self._followed = None
            self._services.fault(found.founder, f"circle: {fault}")
            return
        reason = f"{self._services.table.name_of(found.founder)} split a circle of {found.group}"
        if deltas is not None:
            self._followed, self._prepared = None, PreparedChange(name, encode_found(found), deltas, reason)
        elif self._followed is None:
            await self._prepare(name, reason)

    # ---- deciding ----

    async def _decide(self) -> None:
        if self._context.compared and not self._similarity.fingerprint:
            return
        circles = self._circles(self._circle.name or GENESIS)
        advice = await self._advise(circles, self._splits.rounds_here, lambda: self._similarity.tree)
        if advice.what == "split":
            await self._split(advice)
        elif advice.what == "join":
            circle = self._where_mates_went(circles) or _named(advice.circle)
            await self._prepare(circle, advice.reason, self._members.in_circle())
        elif advice.what == "move":
            await self._prepare(_named(advice.circle), advice.reason)

    async def _advise(self, circles: Mapping[PeerId, str], rounds_here: int, tree: Callable[[], Dendrogram]) -> Advice:
        """Advice on the circle to be in, computed in the background: with many circles it takes a while."""
        declared = Declared(self._services.identity.peer_id, circles)
        aim, rng = self._similarity.aim, random.Random(self._services.seams.rng.getrandbits(64))
        return await self._services.seams.background(lambda: advise(declared, tree(), aim, rounds_here, rng))

    def _circles(self, mine: str) -> dict[PeerId, str]:
        """The circle each learning peer says it is in; "" for peers of bad reputation and those who just left ours."""
        now, reputation = self._services.seams.clock.monotonic(), self._services.reputation
        found, learning = {self._services.identity.peer_id: mine}, set(self._members.in_run())
        for peer in self._members.present():
            announced = self._members.announced(peer)
            circle = announced.circle
            left = circle == self._circle.name and peer.id in self._splits.left
            counts = announced.fingerprint if self._context.compared else peer.id in learning
            if counts and not left and not reputation.ignored(peer.id, now):
                found[peer.id] = (circle or GENESIS) if self._trust.enterable(circle) else ""
        return without_tiny_circles(found, mine)

    def _where_mates_went(self, circles: dict[PeerId, str]) -> str:
        """The circle that another member of this small circle has joined, if this node may join it too, or ""."""
        may = joinable(Declared(self._services.identity.peer_id, circles))
        went = (circles.get(peer, "") for peer in self._splits.mates)
        return next((_named(name) for name in went if name in may), "")

    async def _leave(self, reason: str) -> None:
        """Enter another circle like a newcomer, because this one does harm."""
        self._trust.avoid(self._circle.name, LONG)
        advice = await self._advise(self._circles(""), 0, lambda: self._similarity.tree)
        if advice.what == "enter" and await self._prepare(_named(advice.circle), f"left the last one: {reason}"):
            self._followed = None

    async def _split(self, advice: Advice) -> None:
        policy, group = self._policy, len(self._members.in_circle()) + 1
        try:
            found, deltas = await self._services.seams.background(
                lambda: split_off(policy, self._services.identity, advice.members, group, self._genesis)
            )
        except ValueError:
            return  # our weights are being repaired
        reason = f"splits off with {len(advice.members) - 1} others: {advice.reason}"
        after = self._train_progress.rounds + SPREAD_ROUNDS
        self._prepared = PreparedChange(circle_name(found), encode_found(found), deltas, reason, after)

    async def _prepare(self, name: str, reason: str, joining: list[PeerId] | None = None) -> bool:
        """Take a snapshot of another circle to go on from; `joining` are the members of ours that go there too."""
        members = [peer for peer, circle in self._circles("").items() if _named(circle) == name and circle]
        found = await self.founding.ask(name, members) if name else None
        taken: list[DeltaSet] = []
        lineage = circle_lineage(self._genesis, name)

        def take(snapshot: Snapshot) -> None:
            taken.append(set_from_snapshot(self._policy, lineage, snapshot))

        alone, take_from = len(members) < LEAST_MEMBERS, self._context.snapshots.take_from
        known = not name or (found is not None and is_valid_founding(found, self._policy.set.rules))
        if not known or not await take_from(members, name, take, unconfirmed_ok=alone):
            self._trust.avoid(name)
            return False
        loss_limit = await self._try(name, taken[-1])
        if loss_limit is None:
            return False
        record = b"" if found is None else encode_found(found)
        union = None if joining is None else (len(joining) + 1, len(members))
        self._prepared = PreparedChange(name, record, taken[-1], reason, union=union, loss_limit=loss_limit)
        return True

    async def _try(self, name: str, deltas: DeltaSet) -> float | None:
        """The highest acceptable loss in a circle; None when its weights do much worse here than our own."""
        trust, policy = self._trust, self._policy
        try:
            return await self._services.seams.compute(lambda: trust.loss_limit(deltas.weights(), policy.weights()))
        except (Unsuited, LocalProblem) as error:
            trust.avoid(name, LONG)
            text = f"this node does not go to circle {name[:8] or GENESIS}: {error}"
            self._services.events.say("circle", text, warning=True)
            return None

    async def enter(self, probe: NewcomerFingerprint) -> bool:
        """Start a newcomer in the circle where it helps most; False when that is the run's first circle, or none.

        If there is a choice, the newcomer's data decide, by the fingerprint of a short training alone.
        """
        for _ in range(ENTER_TRIES):
            circles = self._circles("")
            known = await probe.fingerprint() if len({*circles.values()} - {""}) > 1 else b""
            view = self._similarity.newcomer_view(circles, known)
            advice = await self._advise(circles, 0, lambda view=view: grow(view))  # type: ignore[misc]
            if advice.what != "enter" or advice.circle == GENESIS:
                return False
            if await self._prepare(advice.circle, advice.reason):
                await self.change()
                return True
        return False

    # ---- changing ----

    @property
    def due(self) -> bool:
        """Whether a change of circles is prepared."""
        return self._prepared is not None and self._train_progress.rounds >= self._prepared.after

    async def change(self) -> BridgeDraft | None:
        """Change circles between two rounds. Returns what to publish there once the state is saved, if anything."""
        change, self._prepared = self._prepared, None
        assert change is not None
        before = self._members.in_circle()
        try:
            incarnation, weights, union = await self._services.seams.compute(lambda: self._pack(change))
        except LocalProblem as problem:
            self._services.events.say("circle", f"this node stays in its circle: {problem}", warning=True)
            return None
        # No await from here on: what this node answers must belong to the circle it names.
        self._policy.move(change.deltas, weights, incarnation)
        circle, context = self._circle, self._context
        circle.name, circle.found, circle.since = change.name, change.found, self._train_progress.rounds
        context.judge.moved()
        context.bridging.move()
        context.snapshots.offers.move()
        self._splits.moved()
        self._followed = None
        self._trust.moved(change.loss_limit)
        self._to_greet = [*before, *(peer for peer in self._members.in_circle() if peer not in before)]
        self._services.events.say("circle", f"in circle {change.name[:8] or GENESIS} now: {change.reason}")
        return union

    def _pack(self, change: PreparedChange) -> tuple[int, Floats, BridgeDraft | None]:
        """Heavy. What is needed there: a new log, the weights, a union. LocalProblem when the disk fails."""
        incarnation = self._context.begin_log()
        union = None if change.union is None else union_with(self._policy, change.deltas, *change.union)
        return incarnation, change.deltas.weights(), union


def _named(circle: str) -> str:
    """A circle's name as it is announced: the run's first one has none."""
    return "" if circle == GENESIS else circle
