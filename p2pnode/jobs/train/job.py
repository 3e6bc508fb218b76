"""The train job: rounds of local steps and, at the same time, exchanges with partners. Neither waits for the other.

train     K local steps → record → publish (journal on disk first) → merge → again
exchange  after each round, three partners: ask, take, push
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import numpy as np

from ...circles.bridging import Bridging
from ...circles.driver import CircleContext, CircleDriver
from ...circles.members import CurrentCircle, Members
from ...circles.messages import Bridge, CircleIs, GetCircle
from ...compression.weights import Floats
from ...config.until import THRESHOLD
from ...merging.deltaset.entry import EntryFacts
from ...merging.messages import Exchange
from ...merging.policy import Policy, RoundFacts
from ...merging.snapshots.driver import Snapshots
from ...merging.snapshots.messages import GetChunks, GetKept, GetSnapshot
from ...runtime.events import Kind
from ...runtime.routes import Routes
from ...shards.driver import ShardDriver
from ...shards.messages import GetNeeds, GetShard, SyncShards
from ...shards.samples import sample_layout
from ...shards.shipping import ShardShipping
from ...similarity.driver import PeerSimilarity
from ...similarity.messages import SwapNeighbours
from ...storage.checkpoints import CheckpointStore
from ...tasks.task import Evaluation
from ...training.evaluation import PeriodicEvaluation
from ...training.fingerprinter import Fingerprinter
from ...training.host import ModelHost
from ...training.newcomer_probe import NewcomerProbe
from ...training.progress import Monitor, TrainProgress, reached
from ...training.rounds import local_steps, mean_steps, shortened
from ...training.trainer import Trainer
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import Diverged, LocalProblem, PeerRefused, TaskProblem
from ...wire.ids import PeerId
from ...wire.messages import JobAnnouncement
from ...wire.status import ExchangeRow, JobStatus, PeerState, ShardRow
from ...wire.types import Seconds
from ..contract import Job, JobContext, JobPace
from .checkpoints import Checkpoints, progress_folder
from .commands import execute
from .exchange import ExchangeLoop, PartnerExchange
from .export import ExportSource
from .messages import GetProbe, GetWeights, SwapModels, SwapResult
from .model_check import ModelCheck
from .model_swap import ModelSwap, SwapRules
from .options import TrainSetup, own_seed
from .shard_rows import ShardRows
from .shard_training import ShardTraining
from .status import describe_peers, train_status
from .steps import RoundSteps

EVALUATE_EVERY = 2.5  # rounds, at their intended length, or less often
WARN_EVERY: Seconds = 30.0
SHORTEST_ROUND: Seconds = 0.1  # from publishing to publishing
FIRST_STEPS = 5.0  # mean local steps of a round while the speed is not known
SLOWEST = 1 / 64  # of the learning rate, after it has diverged again and again


class TrainJob(Job):
    """One model that this node trains with the other members of a run."""

    def __init__(
        self,
        context: JobContext,
        model_host: ModelHost,
        policy: Policy,
        setup: TrainSetup,
        fingerprinter: Fingerprinter | None = None,
    ) -> None:
        super().__init__(context)
        services, round_seconds = context.services, setup.plan.round_seconds
        now = services.seams.clock.monotonic()
        self.model = self
        self.policy = policy
        self.model_host = model_host
        self.fingerprinter = fingerprinter
        self.train_progress = TrainProgress(Monitor(_threshold(setup)), services.identity.peer_id, begun=now)
        self.trainer = Trainer(
            model_host,
            np.empty(0, np.int64),
            own_seed(context),
            declared_speed=services.seams.speed,
            brake=services.limiter.brake,
        )
        self._services = services
        self._setup = setup
        self._compute = context.compute
        self._warned: dict[str, Seconds] = {}
        self._rate = 1.0
        self._current_circle = CurrentCircle(setup.options.circle)
        self._make_exchange()
        self._make_data()
        store = CheckpointStore(services.seams.storage, progress_folder(context.folder), setup.options.max_disk)
        self._checkpoints = Checkpoints(store, policy, self.trainer, self.train_progress, self._current_circle, now)
        self.circle_driver = self._make_circle_driver()
        self._evaluating = PeriodicEvaluation(self.trainer, EVALUATE_EVERY * round_seconds, now)
        self._round_steps = RoundSteps(
            services.seams, policy, self.trainer, round_seconds, context.compute.longest_piece
        )
        self.routes = self._routes()

    def _make_exchange(self) -> None:
        """Who the members are, and how this node exchanges with them."""
        context, services, calls, policy = self.context, self._services, self.context.calls, self.policy
        circle, setup, announcer = self._current_circle, self._setup, context.membership.announcer
        self.members = Members(services.table, calls.run, calls.job, circle, policy.can.entries is not None)
        self.bridging = Bridging(services, calls, policy, setup.genesis, self.train_progress, self.members)
        self.snapshots = Snapshots(services, calls, policy, lambda: circle.name)
        self.model_check = ModelCheck(
            services, calls, policy, self.model_host, self.members, context.founder, setup.model_confirmed
        )
        self.similarity = PeerSimilarity(services, calls, setup.plan.aim, setup.partners)
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
            run_age=lambda: (services.clock.now() - context.created) / setup.plan.round_seconds,
            own_record=lambda: announcer.hello().announcement,
        )

    def _make_data(self) -> None:
        """The shards this node trains on, how they travel, and how models travel to data that does not."""
        services, calls, options = self._services, self.context.calls, self._setup.options
        layout = sample_layout({name: column.numpy() for name, column in self.model_host.data.items()})
        room = None if options.max_disk is None else options.max_disk // 2
        self.shard_driver = ShardDriver(services, calls, layout, self.members.in_run, room)
        self.work = ShardTraining(services, self.shard_driver, self.trainer, self._setup)
        self.shipping = ShardShipping(
            services, calls, self.shard_driver, self.work, self.similarity, self.partner_exchange.link
        )
        rules = SwapRules(not options.no_model_swaps, self._setup.stays_home, self._setup.rows is not None)
        self.model_swap = ModelSwap(
            services, calls, self.policy, self.trainer, self.similarity, self.members.out_of_reach, rules
        )
        self.shards = ShardRows(
            self.work, self.shard_driver, self.trainer.pool, services.identity.peer_id, self.shipping.reasons
        )

    def _make_circle_driver(self) -> CircleDriver | None:
        """What moves this node between circles; None where the policy forms none, or the user declared one."""
        circles = self.policy.can.circles
        if circles is None or self._setup.options.circle:
            return None
        return CircleDriver(
            CircleContext(
                self._services,
                self.context.calls,
                self.members,
                circles,
                self._setup.genesis,
                self.train_progress,
                self.trainer,
                self.similarity,
                self.snapshots,
                self.bridging,
                begin_log=self._checkpoints.begin_log,
                greet=self.context.membership.tell,
            )
        )

    # ---- life ----

    async def resume(self) -> bool:
        """Resume from disk. Returns False when nothing was saved; the node then begins a new log."""
        await self.work.start()
        await self._services.seams.compute(self._choose_rows)
        resumed, words = await self._services.seams.compute(self._checkpoints.resume)
        for text in words:
            self._services.events.say("state", text, warning=True)
        return resumed

    async def run(self) -> str:
        """Train and exchange until cancelled, or until the user's goal is reached: then returns the reason."""
        self.train_progress.begun = self._services.seams.clock.monotonic()
        await self.model_check.first()
        async with asyncio.TaskGroup() as group:
            lasting = (
                self.exchange_loop.run(),
                self.shard_driver.run(),
                self.shipping.run(),
                self.model_swap.run(),
                self.model_check.run(),
            )
            tasks = [group.create_task(one) for one in lasting]
            if self.circle_driver is not None:
                tasks.append(group.create_task(self.circle_driver.run()))
            why = await self._keep_training()
            await self.exchange_loop.once()  # the last entry too should get around
            for task in tasks:
                task.cancel()
        return why

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

    def _warn(self, kind: Kind, text: str) -> None:
        """Report a problem, but each kind of problem only every WARN_EVERY seconds."""
        self.train_progress.problems += 1
        now = self._services.seams.clock.monotonic()
        if now - self._warned.get(kind, -WARN_EVERY) >= WARN_EVERY:
            self._warned[kind] = now
            self._services.events.say(kind, text, warning=True)

    # ---- training ----

    async def _keep_training(self) -> str:
        """Train round after round; returns the reason when the user's goal is reached."""
        clock, until = self._services.seams.clock, self._setup.options.until
        while True:
            await self._services.limiter.free()
            begun = clock.monotonic()
            await self.work.take_in(self.policy.start, self.train_progress.rounds)
            await self._services.seams.compute(self._choose_rows)
            if self.trainer.samples:
                await self._round_or_rollback()
                await self._now_and_then()
                await self._change_circle()
                shortest = SHORTEST_ROUND
            else:
                shortest = self._setup.plan.round_seconds  # others hold all shards; one falls to us when they leave
            why = "" if until is None else reached(until, self.train_progress.reached(clock.monotonic()))
            if why:
                return why
            await asyncio.sleep(max(0.0, begun + shortest - clock.monotonic()))

    async def _round_or_rollback(self) -> None:
        """Train one round. If it diverges, keep the weights as they were and lower the learning rate."""
        try:
            await self._round()
            self._rate = min(1.0, self._rate * 1.1)
        except Diverged as problem:
            self._rate = max(SLOWEST, self._rate / 2)
            self.train_progress.diverged += 1
            self._warn("diverged", f"{problem}; back to the last good weights, with a lower learning rate")

    async def _round(self) -> None:
        seams, plan = self._services.seams, self._setup.plan
        speed = self.trainer.speed * self._compute.fraction()
        mean = mean_steps(speed, plan.round_seconds, plan.max_steps) if speed else FIRST_STEPS
        peers = len(self.members.active()) + 1
        pace = self.policy.pace(peers)
        steps = local_steps(shortened(mean, pace.steps), seams.rng, plan.max_steps)
        begun, result = await self._round_steps.train(steps, pace.rate * self._rate, pace.at)
        await self._take_fingerprint(result.weights)
        budget = self.partner_exchange.link.budget(self._setup.plan.round_seconds, peers)
        facts = RoundFacts(result.steps, result.loss, result.samples, peers, budget)
        weights = await self.model_swap.add_results(result.weights)
        # By itself: a simulation computes steps at their beginning, and this must know what came in meanwhile.
        self._publish(await seams.compute(lambda: self.policy.record(begun, weights, facts)))
        bridge = await self.bridging.draft()
        self.train_progress.bridges += bridge is not None and self._publish(bridge)
        merged = await seams.compute(self.policy.merge)
        self.train_progress.note(result.loss, merged, seams.clock.time(), result.steps)
        self.exchange_loop.wake()
        await self.work.end_round(self.train_progress.rounds)
        self.shipping.after_round(self.train_progress.rounds)
        self.model_swap.after_round(self.train_progress.rounds)

    async def _change_circle(self) -> None:
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

    async def _take_fingerprint(self, weights: Floats) -> None:
        """Take the trained model's fingerprint before it merges, so that it shows what this node's data taught."""
        taker, seams = self.fingerprinter, self._services.seams
        if taker is None or not taker.due(seams.clock.monotonic()):
            return
        try:
            self.similarity.took(await seams.compute(lambda: taker.take(self.trainer, weights, seams.clock.monotonic)))
        except (LocalProblem, TaskProblem) as problem:
            self.similarity.withdraw()
            self._warn("fingerprint", str(problem))

    def newcomer_probe(self) -> NewcomerProbe:
        """The probe by which a newcomer chooses its circle."""
        return NewcomerProbe(self._services, self.trainer, self.fingerprinter, self._setup.plan.round_seconds)

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

    def _choose_rows(self) -> None:
        self.trainer.use(self.work.rows(self.members.active()))

    async def _now_and_then(self) -> None:
        clock = self._services.seams.clock
        begun = clock.monotonic()
        if self._evaluating.due(begun):
            look = self._evaluating.evaluate
            self.train_progress.evaluation = await self._services.seams.compute(lambda: look(self.policy.readout()))
            self._evaluating.done(begun, clock.monotonic())
            line = self.train_progress.line(begun)
            if line:
                self._services.events.say("progress", line)
        if self._checkpoints.due(clock.monotonic()):
            await self.save()

    def evaluate(self) -> Evaluation:
        """Heavy. Evaluate the read-out on all of the task's test data."""
        return self.trainer.evaluate(self.policy.readout())

    def evaluate_alone(self, seed: int) -> Evaluation:
        """Heavy. Train a model as many steps on this node's own samples alone, and evaluate it."""
        rows = np.arange(self.model_host.samples) if self._setup.rows is None else self._setup.rows
        trainer = Trainer(self.model_host, rows, seed)
        return trainer.evaluate(trainer.steps(self.model_host.genesis, self.trainer.steps_done).weights)

    # ---- for peers and views ----

    def _routes(self) -> Routes:
        """What peers may ask of this job, and who answers."""
        snapshots, swap = self.snapshots.payload, self.model_swap
        return Routes(
            {
                Exchange: self.partner_exchange.answer,
                Bridge: self.bridging.answer,
                SwapNeighbours: self.similarity.answer,
                GetCircle: self._circle,
                SyncShards: self.shard_driver.answer,
                GetNeeds: self.shipping.needs,
                SwapModels: swap.answer,
                SwapResult: swap.over,
                GetProbe: self.model_check.answer,
            },
            {
                GetSnapshot: snapshots,
                GetChunks: snapshots,
                GetKept: snapshots,
                GetShard: self.shard_driver.payload,
                GetWeights: swap.payload,
            },
        )

    def _circle(self, peer: PeerId, request: GetCircle) -> CircleIs:
        if self.circle_driver is None:
            raise PeerRefused("circle", "this node's circle is declared")
        return self.circle_driver.founding.answer(peer, request)

    def announcement(self) -> JobAnnouncement:
        """What the node announces of this job."""
        return JobAnnouncement(self.name, self.members.circle.name, self.similarity.fingerprint)

    def pace(self) -> JobPace:
        return JobPace(*self.trainer.pace)

    @property
    def unreplicated(self) -> int:
        """How many shards leaving would take out of the swarm, as far as is known."""
        return len(self.shard_driver.unreplicated)

    async def hand_over(self, limit: Seconds) -> None:
        """Before leaving, give shards that are only here to others."""
        await self.shard_driver.hand_over_all(limit)

    def exchanges(self) -> Sequence[ExchangeRow]:
        return list(self.train_progress.partners.values())

    def shard_rows(self) -> tuple[ShardRow, ...]:
        return self.shards.all(self._services.seams.clock.monotonic())

    def export_source(self) -> ExportSource:
        """Where weights that are exported now come from."""
        rounds, circle = self.train_progress.rounds, self._current_circle.name
        run, now = self.context.calls.access.run, self._services.seams.clock.time()
        return ExportSource(run, self.name, self._setup.plan, rounds, circle, now)

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        """Do what the user commands; LocalProblem or UsageError when that cannot be done."""
        return await execute(request, self, self._services)

    def reported_facts(self, peer: PeerId) -> EntryFacts | None:
        """What a peer reported about its latest round."""
        return None if self.policy.can.entries is None else self.policy.can.entries.latest(peer)

    def heads(self) -> dict[PeerId, int]:
        """The sequence number of the latest known entry of each author."""
        return {} if self.policy.can.entries is None else self.policy.can.entries.heads()

    def describe(self, peers: Iterable[PeerState]) -> tuple[PeerState, ...]:
        """The same peers with what this job knows of them."""
        return describe_peers(self, peers)

    def status(self) -> JobStatus:
        return train_status(self, self.members.circle.name, self._setup.plan.aim, self._services.identity.peer_id)


def _threshold(setup: TrainSetup) -> float:
    """The update norm below which training counts as converged."""
    until = setup.options.until
    return until.amount if until is not None and until.what == "converged" else THRESHOLD
