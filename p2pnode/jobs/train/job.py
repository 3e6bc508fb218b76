"""Learning in a run: rounds of local steps and, beside them, exchanges with partners. Neither waits for the other.

train     K local steps → record → publish (journal on disk first) → merge → again
exchange  after each round, three partners: ask, take, push
"""

from __future__ import annotations

import asyncio

import numpy as np

from ...circles.bridging import Bridging
from ...circles.current import OwnCircle
from ...circles.driver import Circling
from ...compression.weights import Floats
from ...config.until import THRESHOLD, Monitor, reached
from ...discovery.admission import Admission
from ...discovery.membership import Membership
from ...merging.deltaset.entry import Facts as EntryFacts
from ...merging.deltaset.pace import pace_of
from ...merging.deltaset.policy import DeltaSetPolicy
from ...merging.policy import Facts, Policy
from ...network.base import Seconds
from ...node.assemble import Parts
from ...runtime.event_kinds import Kind
from ...shards.driver import Holdings
from ...shards.passing import Passing
from ...shards.samples import sample_layout
from ...storage.checkpoints import Progress
from ...tasks.task import Evaluation
from ...training.evaluation import Evaluating
from ...training.fingerprinter import Fingerprinter
from ...training.host import Bench
from ...training.newcomer_probe import FirstLook
from ...training.progress import Standings
from ...training.rounds import lam_for, local_steps, shortened
from ...training.trainer import Trainer
from ...wire.errors import Diverged, LocalProblem, TaskProblem
from ...wire.ids import PeerId
from ...wire.run import RunAccess
from ...wire.status import LearningStatus
from .checkpoints import Saving
from .desk import Desk
from .exchange import MODEL, Exchanging
from .model_swap import Hospitality, Visiting
from .options import Terms, own_seed
from .shard_rows import ShardRows
from .shard_work import ShardWork
from .status import learning_status
from .steps import Slices

EVALUATE_EVERY = 2.5  # rounds, at their intended length, or less often
WARN_EVERY: Seconds = 30.0
SHORTEST_ROUND: Seconds = 0.1  # from publishing to publishing
FIRST_STEPS = 5.0  # mean local steps of a round while the speed is not known
SLOWEST = 1 / 64  # of the learning rate, after it has diverged again and again


class Learning:
    """One model of one run at one node."""

    def __init__(self, parts: Parts, access: RunAccess, bench: Bench, policy: Policy, terms: Terms) -> None:
        until = terms.until
        threshold = until.amount if until is not None and until.what == "converged" else THRESHOLD
        self.policy = policy
        self.bench = bench
        self.standings = Standings(Monitor(threshold), parts.identity.peer_id, begun=parts.world.clock.monotonic())
        admission = Admission(access, parts.identity.peer_id, MODEL)
        bridging = Bridging(parts, admission, policy, terms.genesis, self.standings)
        own = OwnCircle(terms.circle)
        self.exchanging = Exchanging(parts, access, policy, self.standings, own, bridging, terms)
        self.exchanging.age = self._age
        self.likeness = self.exchanging.likeness
        layout = sample_layout({name: column.numpy() for name, column in bench.data.items()})
        room = None if terms.max_disk is None else terms.max_disk // 2
        self.holdings = Holdings(parts, admission, layout, self.exchanging.run_members, room)
        self.fingerprints: Fingerprinter | None = None
        self.trainer = Trainer(bench, np.empty(0, np.int64), own_seed(parts, access), declared_speed=parts.world.speed)
        self.trainer.brake = parts.restraint.brake
        self._parts = parts
        self._terms = terms
        self.work = ShardWork(parts, self.holdings, self.trainer, terms)
        self.passing = Passing(parts, admission, self.holdings, self.work, self.likeness, self.exchanging.link)
        at_home = Hospitality(terms.visits, terms.stays_home, terms.rows is not None)
        self.visiting = Visiting(
            parts, admission, policy, self.trainer, self.likeness, self.exchanging.elsewhere, at_home
        )
        self.shards = ShardRows(self.work, self.holdings, self.trainer.pool, parts.identity.peer_id)
        now = parts.world.clock.monotonic()
        progress = Progress(parts.world.storage, f"runs/{access.run}/{MODEL}", terms.max_disk)
        self._saving = Saving(progress, policy, self.trainer, self.standings, own, now)
        self.circling: Circling | None = None  # a declared circle is never left
        if isinstance(policy, DeltaSetPolicy) and not terms.circle:
            self.circling = Circling(
                parts, self.exchanging, policy, terms.genesis, self.standings, self.trainer, self._saving
            )
        self.desk = Desk(self)
        self._evaluating = Evaluating(self.trainer, EVALUATE_EVERY * terms.round_seconds, now)
        self._warned: dict[str, Seconds] = {}
        self._rate = 1.0
        self._slices = Slices(parts.world, policy, self.trainer, terms.round_seconds)

    # ---- life ----

    async def resume(self) -> bool:
        """Go on from what was saved; False when there is nothing, and then this node's log begins anew."""
        await self.work.start()
        await self._parts.world.compute(self._choose_rows)
        resumed, words = await self._parts.world.compute(self._saving.resume)
        for text in words:
            self._parts.events.say("state", text, warning=True)
        return resumed

    async def keep(self) -> str:
        """Train and exchange until cancelled, or until the user's goal is reached: then returns why that is."""
        self.standings.begun = self._parts.world.clock.monotonic()
        async with asyncio.TaskGroup() as group:
            lasting = (self.exchanging.keep(), self.holdings.keep(), self.passing.keep(), self.visiting.keep())
            beside = [group.create_task(one) for one in lasting]
            if self.circling is not None:
                beside.append(group.create_task(self.circling.keep()))
            why = await self._keep_training()
            await self.exchanging.once()  # the last entry too should get around
            for task in beside:
                task.cancel()
        return why

    async def save(self, limit: Seconds | None = None) -> None:
        """Put everything on disk; a full disk costs the saving, not the training."""
        clock = self._parts.world.clock
        begun = clock.monotonic()
        try:
            async with asyncio.timeout(limit):
                await self._parts.world.compute(self._saving.save)
        except (LocalProblem, TimeoutError) as problem:
            self._warn("disk", f"progress was not saved: {str(problem) or 'training took too long to end'}")
        self._saving.done(begun, clock.monotonic())

    def _warn(self, kind: Kind, text: str) -> None:
        """Say what went wrong, each kind of thing now and then only."""
        self.standings.problems += 1
        now = self._parts.world.clock.monotonic()
        if now - self._warned.get(kind, -WARN_EVERY) >= WARN_EVERY:
            self._warned[kind] = now
            self._parts.events.say(kind, text, warning=True)

    # ---- training ----

    async def _keep_training(self) -> str:
        """Round after round; returns why when the user's goal is reached."""
        clock, until = self._parts.world.clock, self._terms.until
        while True:
            await self._parts.restraint.free()
            begun = clock.monotonic()
            await self.work.take_in(self.policy.start, self.standings.rounds)
            await self._parts.world.compute(self._choose_rows)
            if self.trainer.samples:
                await self._round_or_rollback()
                await self._now_and_then()
                await self._change_circle()
                shortest = SHORTEST_ROUND
            else:
                shortest = self._terms.round_seconds  # others hold all shards; one falls to us when they leave
            why = "" if until is None else reached(until, self.standings.reached(clock.monotonic()))
            if why:
                return why
            await asyncio.sleep(max(0.0, begun + shortest - clock.monotonic()))

    async def _round_or_rollback(self) -> None:
        """A round; one whose numbers are no longer finite leaves everything as it was, and the next goes slower."""
        try:
            await self._round()
            self._rate = min(1.0, self._rate * 1.1)
        except Diverged as problem:
            self._rate = max(SLOWEST, self._rate / 2)
            self.standings.diverged += 1
            self._warn("diverged", f"{problem}; back to the last good weights, with a lower learning rate")

    async def _round(self) -> None:
        world, most = self._parts.world, self._terms.max_steps
        lam = lam_for(self.trainer.speed, self._terms.round_seconds, most) if self.trainer.speed else FIRST_STEPS
        peers = len(self.exchanging.circle()) + 1
        pace = pace_of(self.policy, peers)
        steps = local_steps(shortened(lam, pace.steps), world.rng, most)
        begun, result = await self._slices.train(steps, pace.rate * self._rate, pace.at)
        await self._take_fingerprint(result.weights)
        budget = self.exchanging.link.budget(self._terms.round_seconds, peers)
        facts = Facts(result.steps, result.loss, result.samples, peers, budget)
        weights = await self.visiting.come_home(result.weights)
        # By itself: a simulation computes steps at their beginning, and this must know what came in meanwhile.
        self._publish(await world.compute(lambda: self.policy.record(begun, weights, facts)))
        bridge = await self.exchanging.bridging.draft()
        self.standings.bridges += bridge is not None and self._publish(bridge)
        merged = await world.compute(self.policy.merge)
        self.standings.note(result.loss, merged, world.clock.time(), result.steps)
        self.exchanging.soon()
        await self.work.end_round(self.standings.rounds)
        self.passing.soon(self.standings.rounds)
        self.visiting.soon(self.standings.rounds)

    async def _change_circle(self) -> None:
        """Between rounds; saved before anything is published there."""
        circling = self.circling
        if circling is None:
            return
        if circling.due:
            union = await circling.change()
            await self.save()
            if union is not None:
                self._publish(union)
        circling.round_done()

    async def _take_fingerprint(self, weights: Floats) -> None:
        """Of the model as training left it, before it merges: so that it shows what this node's data did."""
        taker, world = self.fingerprints, self._parts.world
        if taker is None or not taker.due(world.clock.monotonic()):
            return
        try:
            self.likeness.took(await world.compute(lambda: taker.take(self.trainer, weights, world.clock.monotonic)))
        except (LocalProblem, TaskProblem) as problem:
            self.likeness.withdraw()
            self._warn("fingerprint", str(problem))

    def first_look(self) -> FirstLook:
        """For a newcomer that must choose a circle."""
        return FirstLook(self._parts, self.trainer, self.fingerprints, self._terms.round_seconds)

    def _age(self) -> float:
        """Of the run, in rounds."""
        return (self._parts.clock.now() - self._terms.created) / self._terms.round_seconds

    def _publish(self, draft: object) -> bool:
        """Journal at once, with no wait between: nobody may hear what this node could deny after a crash."""
        journal = b""
        try:
            journal = self.policy.publish(draft)
            if journal:
                self._saving.note(journal)
        except ValueError as error:
            self._warn("refused", f"this round's delta breaks the run's own rules and stays here: {error}")
        except LocalProblem as problem:
            self._warn("disk", f"what was published could not be noted: {problem}")
        return bool(journal)

    def _choose_rows(self) -> None:
        self.trainer.use(self.work.rows(self.exchanging.circle()))

    async def _now_and_then(self) -> None:
        clock = self._parts.world.clock
        begun = clock.monotonic()
        if self._evaluating.due(begun):
            look = self._evaluating.evaluate
            self.standings.evaluation = await self._parts.world.compute(lambda: look(self.policy.readout()))
            self._evaluating.done(begun, clock.monotonic())
            line = self.standings.line(begun)
            if line:
                self._parts.events.say("progress", line)
        if self._saving.due(clock.monotonic()):
            await self.save()

    def evaluate(self) -> Evaluation:
        """How good the read-out is on all of the task's test data. Heavy."""
        return self.trainer.evaluate(self.policy.readout())

    # ---- for peers and views ----

    def meet(self, membership: Membership) -> None:
        """Say what is learned here to the others, and where."""
        announcer = membership.announcer
        announcer.fingerprint = lambda: self.likeness.fingerprint
        announcer.circle = lambda: self.exchanging.own.name
        self.exchanging.own_record = lambda: announcer.hello().announcement
        if self.circling is not None:
            self.circling.tell = membership.tell

    def told(self, peer: PeerId) -> EntryFacts | None:
        """What a peer said of its latest round."""
        return self.policy.told.get(peer) if isinstance(self.policy, DeltaSetPolicy) else None

    def heads(self) -> dict[str, int]:
        """The seq of the newest entry known of each author, in its newest incarnation."""
        chains = self.policy.set.heads if isinstance(self.policy, DeltaSetPolicy) else {}
        return {chain.peer: chains[chain] for chain in sorted(chains)}

    def status(self) -> LearningStatus:
        return learning_status(self, self.exchanging.own.name, self._terms.aim, self._parts.identity.peer_id)
