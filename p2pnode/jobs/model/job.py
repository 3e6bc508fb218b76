"""A job whose members share one model by a merge policy, whoever does the local steps."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...circles.bridging import Bridging
from ...circles.driver import CircleContext, CircleDriver, NewcomerFingerprint
from ...circles.members import CurrentCircle, Members
from ...circles.messages import Bridge, CircleIs, GetCircle
from ...circles.trust import CircleJudge
from ...compression.weights import Floats
from ...config.until import THRESHOLD, Until
from ...merging.capabilities import SharesEntries
from ...merging.deltaset.entry import EntryFacts
from ...merging.deltaset.vetoes import VetoCount
from ...merging.messages import Exchange
from ...merging.policy import MergeResult, Policy, RoundFacts
from ...merging.snapshots.driver import Snapshots
from ...merging.snapshots.messages import GetChunks, GetKept, GetSnapshot
from ...runtime.events import Kind
from ...runtime.routes import Routes
from ...similarity.driver import PeerSimilarity
from ...similarity.messages import SwapNeighbours
from ...similarity.partners import PartnerSettings
from ...storage.checkpoints import CheckpointStore
from ...training.progress import Monitor, TrainProgress
from ...wire.errors import LocalProblem, PeerRefused
from ...wire.ids import PeerId, short
from ...wire.messages import JobAnnouncement
from ...wire.run import Aim
from ...wire.status import ExchangeRow, PeerState
from ...wire.types import Seconds
from ..contract import Job, JobContext
from .authors import describe_vetoes
from .checkpoints import Checkpoints, Resumable, progress_folder
from .exchange import ExchangeLoop, PartnerExchange
from .status import describe_peers

WARN_EVERY: Seconds = 30.0
MOST_UNCONFIRMED = 3  # rounds; then this node's log is given up for a new one
SPREAD = 8  # of the numbers for new logs
CATCH_UP_TRIES = 3  # before a newcomer begins at the first weights
CATCH_UP_PAUSE: Seconds = 1.0


@dataclass(frozen=True)
class SharingSetup:
    """How a model is shared: what the members agreed on, and what this node's user wants."""

    genesis: bytes  # hash of the run's first weights, which names its lineage
    aim: Aim
    partners: PartnerSettings
    round_seconds: Seconds
    circle: str = ""  # that the user declared
    max_disk: int | None = None
    until: Until | None = None
    compared: bool = True  # only members whose models are compared form circles: others have nothing to train on


class ModelJob(Job):
    """One model that the members of a run improve together.

    A kind gives the trainer whose state is saved with the model, and calls `end_round` after some local steps.
    """

    def __init__(
        self,
        context: JobContext,
        policy: Policy,
        sharing: SharingSetup,
        trainer: Resumable,
        judge: CircleJudge | None = None,
    ) -> None:
        """`judge` compares the weights of circles on own samples; without it the node stays in its circle."""
        super().__init__(context)
        services = context.services
        now = services.seams.clock.monotonic()
        self.policy = policy
        self.train_progress = TrainProgress(Monitor(_threshold(sharing.until)), services.identity.peer_id, begun=now)
        self._services = services
        self._sharing = sharing
        self._warned: dict[str, Seconds] = {}
        self._vetoes: dict[str, VetoCount] = {}  # against authors, as last reported
        self._unconfirmed = 0  # rounds whose progress was kept back, until partners confirm this node's log
        self._current_circle = CurrentCircle(sharing.circle)
        self._make_exchange()
        store = CheckpointStore(services.seams.storage, progress_folder(context.folder), sharing.max_disk)
        self._checkpoints = Checkpoints(store, policy, trainer, self.train_progress, self._current_circle, now)
        self.circle_driver = None if judge is None else self._make_circle_driver(judge)

    def _make_exchange(self) -> None:
        """Who the members are, and how this node exchanges with them."""
        context, services, calls, policy = self.context, self._services, self.context.calls, self.policy
        circle, sharing, announcer = self._current_circle, self._sharing, context.membership.announcer
        self.members = self.make_members()
        self.bridging = Bridging(services, calls, policy, sharing.genesis, self.train_progress, self.members)
        self.snapshots = Snapshots(services, calls, policy, lambda: circle.name)
        self.similarity = PeerSimilarity(services, calls, sharing.aim, sharing.partners)
        self.partner_exchange = PartnerExchange(
            services, calls, policy, self.train_progress, circle, self.similarity.partner_record
        )
        self.exchange_loop = ExchangeLoop(
            services,
            self.members,
            self.similarity,
            self.partner_exchange,
            self.bridging,
            self.snapshots,
            self.train_progress,
            run_age=lambda: (services.clock.now() - context.created) / sharing.round_seconds,
            own_record=lambda: announcer.hello().announcement,
        )

    def make_members(self) -> Members:
        """The members that share the model with this node: its circle."""
        calls, shares_all = self.context.calls, self.policy.can.entries is not None
        return Members(self._services.table, calls.run, calls.job, self._current_circle, shares_all)

    def _make_circle_driver(self, judge: CircleJudge) -> CircleDriver | None:
        """What moves this node between circles; None where the policy forms none, or the user declared one."""
        circles = self.policy.can.circles
        if circles is None or self._sharing.circle:
            return None
        return CircleDriver(
            CircleContext(
                self._services,
                self.context.calls,
                self.members,
                circles,
                self._sharing.genesis,
                self.train_progress,
                judge,
                self.similarity,
                self.snapshots,
                self.bridging,
                begin_log=self._checkpoints.begin_log,
                greet=self.context.membership.tell,
                compared=self._sharing.compared,
            )
        )

    # ---- life ----

    async def share_while(self, work: Coroutine[Any, Any, str], *background: Coroutine[Any, Any, None]) -> str:
        """Exchange with partners until `work` ends; returns its result. The loops in `background` run as long."""
        self.exchange_loop.wake()  # partners confirm this node's log
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in (self.exchange_loop.run(), *background)]
            if self.circle_driver is not None:
                tasks.append(group.create_task(self.circle_driver.run()))
            reason = await work
            await self.exchange_loop.once()  # the last entry too should get around
            for task in tasks:
                task.cancel()
        return reason

    async def resume(self) -> bool:
        """Resume from disk. Returns False when nothing was saved; the node then begins a new log."""
        resumed, warnings = await self._services.seams.compute(self._checkpoints.resume)
        for text in warnings:
            self._services.events.say("state", text, warning=True)
        return resumed

    async def catch_up(self, probe: NewcomerFingerprint | None = None) -> bool:
        """Enter a circle, or catch up with a member: by its entries while they are few, else by its snapshot.

        Returns whether that worked. For a job that has made no progress yet; members are asked a few times.
        """
        for _ in range(CATCH_UP_TRIES):
            if probe is not None and self.circle_driver is not None and await self.circle_driver.enter(probe):
                return True
            members = self.members.in_circle()
            if not members:
                return False
            if await self.partner_exchange.catch_up_by_entries(members) or await self.snapshots.adopt_from(members):
                return True
            await asyncio.sleep(CATCH_UP_PAUSE)
        return False

    async def save(self, limit: Seconds | None = None) -> None:
        """Write everything to disk. If that fails, training goes on and a warning is reported."""
        clock = self._services.seams.clock
        begun = clock.monotonic()
        try:
            async with asyncio.timeout(limit):
                await self._services.seams.compute(self._checkpoints.save)
        except (LocalProblem, TimeoutError) as problem:
            self._warn("disk", f"progress was not saved: {str(problem) or 'training took too long to end'}")
        self._checkpoints.done(begun, clock.monotonic())

    async def save_if_due(self) -> None:
        if self._checkpoints.due(self._services.seams.clock.monotonic()):
            await self.save()

    def _warn(self, kind: Kind, text: str) -> None:
        """Report a problem, but each kind of problem only every WARN_EVERY seconds."""
        self.train_progress.problems += 1
        now = self._services.seams.clock.monotonic()
        if now - self._warned.get(kind, -WARN_EVERY) >= WARN_EVERY:
            self._warned[kind] = now
            self._services.events.say(kind, text, warning=True)

    # ---- rounds ----

    async def end_round(self, begun: Floats, weights: Floats, facts: RoundFacts) -> MergeResult:
        """Publish what local steps from `begun` to `weights` brought, and merge what partners sent meanwhile."""
        seams, entries = self._services.seams, self.policy.can.entries
        if entries is not None and not await self._may_publish(entries, facts.peers):
            await seams.compute(lambda: entries.keep(begun, weights))
        else:
            # By itself: a simulation computes steps at their beginning, and this must know what came in meanwhile.
            self._publish(await seams.compute(lambda: self.policy.record(begun, weights, facts)))
            bridge = await self.bridging.draft()
            self.train_progress.bridges += bridge is not None and self._publish(bridge)
        merged = await seams.compute(self.policy.merge)
        self._report_vetoes()
        self.train_progress.note(facts.loss, merged, seams.clock.time(), facts.steps)
        self.exchange_loop.wake()
        return merged

    def _report_vetoes(self) -> None:
        """Say what is new about vetoes against authors, before they suffice and when they do."""
        authors = self.policy.can.authors
        counts = {} if authors is None else authors.vetoes()
        for author, count in counts.items():
            if self._vetoes.get(author) != count:
                who = "this node" if author == self._services.identity.peer_id else short(author)
                text = f"vetoes against {who}: {describe_vetoes(count)}"
                self._services.events.say("banned", text, warning=True)
        self._vetoes = counts

    async def _may_publish(self, entries: SharesEntries, peers: int) -> bool:
        """Whether this node's log may go on. Where partners do not confirm it for some rounds, a new one begins."""
        if entries.log_confirmed(peers):
            return True
        self._unconfirmed += 1
        if self._unconfirmed <= MOST_UNCONFIRMED:
            self.exchange_loop.wake()
            return False
        seams, number = self._services.seams, 0
        with contextlib.suppress(LocalProblem):  # then the number after the last one used is taken
            number = await seams.compute(self._checkpoints.begin_log)
        # Not simply the next number: a disk that was set back in time may have used that already.
        entries.begin_log(number + seams.rng.randrange(1, SPREAD), lost_entries=True)
        self._services.events.say("state", "no partner confirmed what this node published; going on with a new log")
        await self.save()
        return True

    def work_of_others(self) -> object:
        """A value that changes whenever a partner's work arrives."""
        entries = self.policy.can.entries
        return self.partner_exchange.taken if entries is None else entries.digest()

    async def merge_between_rounds(self) -> float:
        """Merge what partners sent, while no round is under way; returns the norm of the change of the weights."""
        merged = await self._services.seams.compute(self.policy.merge)
        self.train_progress.note_between(merged)
        return merged.update_norm

    def _publish(self, draft: object) -> bool:
        """Publish and write the journal without waiting in between, so that a crash cannot make this node forget it.

        Returns whether anything was published.
        """
        journal = b""
        try:
            journal = self.policy.publish(draft)
            if journal:
                self._checkpoints.note(journal)
        except ValueError as error:
            self._warn("refused", f"this round's delta breaks the run's own rules and stays here: {error}")
        except LocalProblem as problem:
            self._warn("disk", f"what was published could not be noted: {problem}")
        return bool(journal)

    async def change_circle(self) -> None:
        """Move to another circle between rounds, if due. The move is saved before anything is published there."""
        circle_driver = self.circle_driver
        if circle_driver is None:
            return
        if circle_driver.due:
            union = await circle_driver.change()
            await self.save()
            if union is not None:
                self._publish(union)
        circle_driver.round_done()

    # ---- for peers and views ----

    def sharing_routes(self) -> Routes:
        """What peers may ask about the shared model, and who answers."""
        snapshots = self.snapshots.payload
        return Routes(
            {
                Exchange: self.partner_exchange.answer,
                Bridge: self.bridging.answer,
                SwapNeighbours: self.similarity.answer,
                GetCircle: self._circle,
            },
            {GetSnapshot: snapshots, GetChunks: snapshots, GetKept: snapshots},
        )

    def _circle(self, peer: PeerId, request: GetCircle) -> CircleIs:
        if self.circle_driver is None:
            raise PeerRefused("circle", "this node's circle is declared")
        return self.circle_driver.founding.answer(peer, request)

    def announcement(self) -> JobAnnouncement:
        """What the node announces of this job."""
        return JobAnnouncement(self.name, self.members.circle.name, self.similarity.fingerprint)

    def exchanges(self) -> Sequence[ExchangeRow]:
        return list(self.train_progress.partners.values())

    def describe(self, peers: Iterable[PeerState]) -> tuple[PeerState, ...]:
        """The same peers with what this job knows of them."""
        return describe_peers(self, peers)

    def reported_facts(self, peer: PeerId) -> EntryFacts | None:
        """What a peer reported about its latest round."""
        return None if self.policy.can.entries is None else self.policy.can.entries.latest(peer)

    def heads(self) -> dict[PeerId, int]:
        """The sequence number of the latest known entry of each author."""
        return {} if self.policy.can.entries is None else self.policy.can.entries.heads()


def _threshold(until: Until | None) -> float:
    """The update norm below which training counts as converged."""
    return until.amount if until is not None and until.what == "converged" else THRESHOLD
