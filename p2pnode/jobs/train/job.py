"""The train job: rounds of local steps and, at the same time, exchanges with partners. Neither waits for the other.

train     K local steps → record → publish (journal on disk first) → merge → again
exchange  after each round, three partners: ask, take, push
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ...compression.weights import Floats
from ...merging.policy import Policy, RoundFacts
from ...runtime.routes import Handler, Routes
from ...shards.driver import ShardDriver
from ...shards.messages import GetNeeds, GetShard, SyncShards
from ...shards.samples import sample_layout
from ...shards.shipping import ShardShipping
from ...tasks.task import Evaluation, length
from ...training.evaluation import PeriodicEvaluation
from ...training.fingerprinter import Fingerprinter
from ...training.host import ModelHost
from ...training.newcomer_probe import NewcomerProbe
from ...training.progress import reached
from ...training.rounds import local_steps, mean_steps, shortened
from ...training.slowdown import Slowdown, Surroundings, change_of
from ...training.trainer import Trainer, TrainResult
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import Diverged, LocalProblem, TaskProblem
from ...wire.ids import PeerId
from ...wire.messages import Message
from ...wire.status import JobStatus, PeerState, ShardRow
from ...wire.types import Seconds
from ..contract import JobContext, JobPace
from ..model.job import ModelJob
from .commands import execute
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
REST_LOOK: Seconds = 1.0  # how often a node that rests looks whether something has changed
SLOWEST = 1 / 64  # of the learning rate, after it has diverged again and again
HOPELESS_TRIES = 10  # rounds without a finite loss, before the first good one, until the task itself is tried out


class TrainJob(ModelJob):
    """One model that this node trains with the other members of a run."""

    def __init__(
        self,
        context: JobContext,
        model_host: ModelHost,
        policy: Policy,
        setup: TrainSetup,
        fingerprinter: Fingerprinter | None = None,
    ) -> None:
        services, round_seconds = context.services, setup.plan.round_seconds
        self.trainer = Trainer(
            model_host,
            np.empty(0, np.int64),
            own_seed(context),
            declared_speed=services.seams.speed,
            brake=services.limiter.brake,
        )
        super().__init__(context, policy, setup.sharing, self.trainer, judge=self.trainer)
        self.model = self
        self.model_host = model_host
        self.fingerprinter = fingerprinter
        self._setup = setup
        self._compute = context.compute
        self._rate = 1.0
        self.slowdown = Slowdown()
        self._rested_in: Surroundings | None = None  # when it last rested; None at full speed
        self._rest_seconds: Seconds = 0.0  # of the rest that goes on now
        self._heads_merged: dict[PeerId, int] = {}
        self.model_check = ModelCheck(
            services,
            context.calls,
            policy,
            model_host,
            self.members,
            context.founder,
            setup.model_confirmed,
            setup.same_probe,
        )
        self._make_data()
        now = services.seams.clock.monotonic()
        self._evaluating = PeriodicEvaluation(self.trainer, EVALUATE_EVERY * round_seconds, now)
        self._round_steps = RoundSteps(
            services.seams, policy, self.trainer, round_seconds, context.compute.longest_piece
        )
        self.routes = self._routes()

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

    # ---- life ----

    async def resume(self) -> bool:
        """Resume from disk. Returns False when nothing was saved; the node then begins a new log."""
        await self.work.start()
        await self._services.seams.compute(self._choose_rows)
        return await super().resume()

    async def run(self) -> str:
        """Train and exchange until cancelled, or until the user's goal is reached: then returns the reason."""
        self.train_progress.begun = self._services.seams.clock.monotonic()
        await self.model_check.first()
        beside = (self.shard_driver.run(), self.shipping.run(), self.model_swap.run(), self.model_check.run())
        return await self.share_while(self._keep_training(), *beside)

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
                await self.change_circle()
                await self._rest(clock.monotonic() - begun)
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
            self._tell_awake(self.slowdown.wake("training diverged"))
            self._rate = max(SLOWEST, self._rate / 2)
            self.train_progress.diverged += 1
            self._warn("diverged", f"{problem}; back to the last good weights, with a lower learning rate")
            if self.train_progress.rounds == 0 and self.train_progress.diverged % HOPELESS_TRIES == 0:
                await self._check_first_step(problem)

    async def _check_first_step(self, problem: Diverged) -> None:
        """Raises TaskProblem when not even the first weights can be trained: then no partner can help."""
        try:
            await self._services.seams.compute(lambda: self.trainer.steps(self.model_host.genesis, 1, rate=SLOWEST))
        except Diverged:
            task, what = self._setup.options.task or self._setup.plan.task, str(problem).partition(" after ")[0]
            raise TaskProblem(
                f"task {self.model_host.task.name} cannot be trained: {what} in all of {self.train_progress.diverged} "
                f"tries; look at the values of its data, its loss() and its learning_rate: `python -m p2pnode check "
                f"{task}` says more"
            ) from None

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
        await self.end_round(begun, weights, facts)
        self._note_convergence(result)
        await self.work.end_round(self.train_progress.rounds, self._new_contributors())
        self.shipping.after_round(self.train_progress.rounds)
        self.model_swap.after_round(self.train_progress.rounds)

    def _new_contributors(self) -> list[PeerId]:
        """Other peers whose work came into the merged weights in the latest round."""
        if self.policy.can.entries is None:
            return [PeerId(partner) for partner in self.train_progress.merges[-1].partners]
        before, self._heads_merged = self._heads_merged, self.heads()
        me = self._services.identity.peer_id
        return [peer for peer, head in self._heads_merged.items() if peer != me and head != before.get(peer)]

    # ---- slowing down ----

    def _note_convergence(self, result: TrainResult) -> None:
        """Slow down if the run has converged, unless the user said when to stop or wants full speed."""
        options, progress = self._setup.options, self.train_progress
        if options.full_speed or options.until is not None or progress.monitor.norm is None:
            return
        passes = result.samples / max(1, self.trainer.samples)
        before = self.slowdown.reason
        self._tell_awake(self.slowdown.note_round(result.loss, progress.update_norm, progress.monitor.norm, passes))
        if self.slowdown.reason and not before:
            text = f"{self.slowdown.reason}; resting between rounds until members, data or losses change"
            self._services.events.say("slowed", f"{text} (--full-speed goes on)")

    def _tell_awake(self, why: str) -> None:
        if why:
            self._services.events.say("working", f"at full speed again: {why}")

    async def _rest(self, round_seconds: Seconds) -> None:
        """Rest after a round for as long as a converged run allows, or until something changes."""
        clock = self._services.seams.clock
        self._rest_seconds = self.slowdown.rest(round_seconds)
        if not self._rest_seconds:
            self._rested_in = None
            return
        end, before = clock.monotonic() + self._rest_seconds, self._rested_in or self._surroundings()
        while self.slowdown.reason and (left := end - clock.monotonic()) > 0:
            now = self._surroundings()
            self._tell_awake(self.slowdown.wake(change_of(before, now)))
            self._rested_in = before = replace(now, members=before.members | now.members)
            await asyncio.sleep(min(left, REST_LOOK) if self.slowdown.reason else 0)
        self._rest_seconds = 0.0

    def _surroundings(self) -> Surroundings:
        members, shards = frozenset(self.members.in_circle()), frozenset(self.shard_driver.ids())
        return Surroundings(members, shards, self.trainer.samples, self._services.limiter.limits)

    @property
    def slowed(self) -> str:
        """Why this job rests between rounds; "" at full speed."""
        rest = f"; rests {self._rest_seconds:.0f} s after a round" if self._rest_seconds else ""
        return self.slowdown.reason and f"{self.slowdown.reason}{rest}"

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

    def _choose_rows(self) -> None:
        self.trainer.use(self.work.rows(self.members.active()))

    async def _now_and_then(self) -> None:
        clock = self._services.seams.clock
        begun = clock.monotonic()
        if self._evaluating.due(begun):
            look = self._evaluating.evaluate
            self.train_progress.evaluation = await self._services.seams.compute(lambda: look(self.policy.readout()))
            self._evaluating.done(begun, clock.monotonic())
            self._tell_awake(self.slowdown.note_test(self.train_progress.evaluation))
            line = self.train_progress.line(begun, length(self.model_host.test))
            if line:
                self._services.events.say("progress", line)
        await self.save_if_due()

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
        swap = self.model_swap
        calls: dict[type[Message], Handler] = {
            SyncShards: self.shard_driver.answer,
            GetNeeds: self.shipping.needs,
            SwapModels: swap.answer,
            SwapResult: swap.over,
            GetProbe: self.model_check.answer,
        }
        return self.sharing_routes().plus(
            Routes(calls, {GetShard: self.shard_driver.payload, GetWeights: swap.payload})
        )

    def pace(self) -> JobPace:
        steps, samples, speed = self.trainer.pace
        return JobPace(steps, 0 if self._rest_seconds else samples, speed)

    @property
    def unreplicated(self) -> int:
        """How many shards leaving would take out of the swarm, as far as is known."""
        return len(self.shard_driver.unreplicated)

    async def hand_over(self, limit: Seconds) -> None:
        """Before leaving, give shards that are only here to others."""
        await self.shard_driver.hand_over_all(limit)

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

    def describe(self, peers: Iterable[PeerState]) -> tuple[PeerState, ...]:
        """The same peers with what this job knows of them."""
        return describe_peers(self, peers)

    def status(self) -> JobStatus:
        return train_status(self, self.members.circle.name, self._setup.plan.aim, self._services.identity.peer_id)
