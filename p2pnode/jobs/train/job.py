"""The train job: rounds of local steps and, at the same time, exchanges with partners. Neither waits for the other.

train     K local steps → record → publish (journal on disk first) → merge → again
exchange  after each round, three partners: ask, take, push
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np

from ...circles.trust import TrainerJudge
from ...compression.weights import Floats
from ...merging.policy import Policy, RoundFacts
from ...merging.schedule import planned_rate
from ...runtime.routes import Handler, Routes
from ...shards.driver import ShardDriver
from ...shards.messages import GetNeeds, GetShard, SyncShards
from ...shards.samples import sample_layout
from ...shards.shipping import ShardShipping
from ...tasks.task import Evaluation
from ...training.evaluation import PeriodicEvaluation, PeriodicSample
from ...training.fingerprinter import Fingerprinter
from ...training.host import ModelHost, NoSamples
from ...training.newcomer_probe import NewcomerProbe
from ...training.progress import reached
from ...training.rounds import local_steps, mean_steps, shortened
from ...training.slowdown import Slowdown, Surroundings, change_of, delayed_by_rests, notable_change
from ...training.trainer import Trainer, TrainResult
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import Diverged, LocalProblem, TaskProblem, UsageError
from ...wire.ids import PeerId
from ...wire.messages import Message
from ...wire.status import JobStatus, ShardRow
from ...wire.types import Seconds
from ..contract import JobContext, JobPace, own_seed
from ..model.job import ModelJob
from .commands import execute
from .export import ExportSource
from .generations import Generations, texts_of
from .messages import GetProbe, GetWeights, SwapModels, SwapResult
from .model_check import ModelCheck
from .model_swap import ModelSwap, SwapRules
from .options import TrainSetup
from .settled import SettledWeights
from .shard_rows import ShardRows
from .shard_training import ShardTraining
from .status import job_status
from .steps import RoundSteps

EVALUATE_EVERY = 2.5  # rounds, at their intended length, or less often
SAMPLE_EVERY: Seconds = 120.0  # or less often
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
        super().__init__(context, policy, setup.sharing, self.trainer, TrainerJudge(self.trainer))
        self.model = self
        self.model_host = model_host
        self.fingerprinter = fingerprinter
        self._setup = setup
        self._compute = context.compute
        self._rate = 1.0
        self.slowdown = Slowdown()
        self._rested_in: Surroundings | None = None  # when it last rested; None at full speed
        self._rest_seconds: Seconds = 0.0  # of the rest that goes on now
        self._unreadable = 0  # samples, at the last report
        self._blind = False  # none of the test samples can be read
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
        if services.seams.threaded:
            self.trainer.pool.read_ahead()
        self._make_data()
        now = services.seams.clock.monotonic()
        self._evaluating = PeriodicEvaluation(self.trainer, EVALUATE_EVERY * round_seconds, now)
        self._sampling = PeriodicSample(self.trainer, SAMPLE_EVERY, now)
        self.settled = SettledWeights(policy, self._run_steps, services.events)
        self.generations = Generations(services.seams, texts_of(services.seams, self.trainer, policy.readout))
        self._round_steps = RoundSteps(
            services.seams, policy, self.trainer, round_seconds, context.compute.longest_piece
        )
        self.routes = self._routes()

    def _make_data(self) -> None:
        """The shards this node trains on, how they travel, and how models travel to data that does not."""
        services, calls, options = self._services, self.context.calls, self._setup.options
        layout = sample_layout({name: column.numpy() for name, column in self.model_host.data.empty.items()})
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
        background = (self.shard_driver.run(), self.shipping.run(), self.model_swap.run(), self.model_check.run())
        return await self.share_while(self._keep_training(), *background)

    # ---- training ----

    async def _keep_training(self) -> str:
        """Train round after round; returns the reason when the user's goal is reached."""
        clock = self._services.seams.clock
        while not (why := self._goal_reached()):
            await self._services.limiter.free()
            begun = clock.monotonic()
            await self.work.take_in(self.policy.weights, self.train_progress.rounds)
            await self._services.seams.compute(self._choose_rows)
            if self.trainer.samples:
                await self._round_or_rollback()
                await self._now_and_then()
                await self.change_circle()
                await self._rest(clock.monotonic() - begun)
                shortest = SHORTEST_ROUND
            else:
                shortest = self._setup.plan.round_seconds  # others hold all shards; one falls to us when they leave
            if not self._goal_reached():
                await asyncio.sleep(max(0.0, begun + shortest - clock.monotonic()))
        return why

    def _goal_reached(self) -> str:
        """Why the user's goal is reached; "" while it is not, or where there is none."""
        until, now = self._setup.until, self._services.seams.clock.monotonic()
        return "" if until is None else reached(until, self.train_progress.reached(now, self._run_steps()))

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
        rate = pace.rate * self._rate * planned_rate(self._run_steps(), plan.steps)
        begun, result = await self._round_steps.train(steps, rate, pace.at)
        await self._take_fingerprint(result.weights)
        budget = self.partner_exchange.link.budget(self._setup.plan.round_seconds, peers)
        facts = RoundFacts(result.steps, result.loss, result.samples, peers, budget)
        weights = await self.model_swap.add_results(result.weights)
        await self.end_round(begun, weights, facts)
        self.settled.after_round()
        self._note_convergence(result)
        await self.work.end_round(self.train_progress.rounds, self._new_contributors())
        self._report_unreadable()
        self.shipping.after_round(self.train_progress.rounds)
        self.model_swap.after_round(self.train_progress.rounds)

    def _report_unreadable(self) -> None:
        """Tell when rows of the data could not be read, and again when there are twice as many."""
        problems = self.trainer.pool.problems
        if len(problems) > 2 * self._unreadable:
            self._unreadable, last = len(problems), next(reversed(problems.values()))
            count = "one sample" if len(problems) == 1 else f"{len(problems):,} samples"
            self._warn("data", f"{count} of data() cannot be used and are left out; the last: {last}")

    def _new_contributors(self) -> list[PeerId]:
        """Other peers whose work came into the merged weights in the latest round."""
        if self.policy.can.entries is None:
            return [PeerId(partner) for partner in self.train_progress.merges[-1].partners]
        before, self._heads_merged = self._heads_merged, self.heads()
        me = self._services.identity.peer_id
        return [peer for peer, head in self._heads_merged.items() if peer != me and head != before.get(peer)]

    # ---- slowing down ----

    def _run_steps(self) -> int:
        """Local steps that members of the run have done on average: by the shared log, else this node's own."""
        if self.policy.can.entries is None:
            return self.trainer.steps_done
        return self.policy.pace(len(self.members.active()) + 1).at

    def _note_convergence(self, result: TrainResult) -> None:
        """Slow down if the run has converged, unless the user wants full speed or a goal that rests would delay."""
        options, progress = self._setup.options, self.train_progress
        if options.full_speed or delayed_by_rests(self._setup.until) or progress.monitor.norm is None:
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
        """Rest after a round for as long as a converged run allows, or until something changes.

        What others send meanwhile is merged at once; it ends the rests only if it changes the weights notably, since
        otherwise nodes that rest would wake each other with the little they publish.
        """
        clock = self._services.seams.clock
        self._rest_seconds = self.slowdown.rest(round_seconds)
        if not self._rest_seconds:
            self._rested_in = None
            return
        end, before = clock.monotonic() + self._rest_seconds, self._rested_in or self._surroundings()
        known = self.work_of_others()
        while self.slowdown.reason and not self._goal_reached() and (left := end - clock.monotonic()) > 0:
            now = self._surroundings()
            why = change_of(before, now)
            if not why and known != self.work_of_others():
                known = self.work_of_others()
                why = notable_change(await self.merge_between_rounds())
            self._tell_awake(self.slowdown.wake(why))
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
        if self._evaluating.due(self._services.seams.clock.monotonic()):
            await self._evaluate_some()
        await self._let_speak()
        await self.save_if_due()

    async def _evaluate_some(self) -> None:
        """Evaluate the read-out on some test samples, and tell how good it is. Training goes on without them."""
        clock, look = self._services.seams.clock, self._evaluating.evaluate
        begun = clock.monotonic()
        try:
            found = await self._services.seams.compute(lambda: look(self.policy.readout()))
        except NoSamples as problem:
            if not self._blind:
                self._warn("data", f"{problem} (test_data()); training goes on, and nobody knows how good the model is")
            self._blind = True
            self._evaluating.done(begun, clock.monotonic())
            return
        self.train_progress.evaluation, self._blind = found, False
        self._evaluating.done(begun, clock.monotonic())
        self._tell_awake(self.slowdown.note_test(found))
        line = self.train_progress.line(begun, len(self.model_host.test), self.model_host.task.figures(found))
        if line:
            self._services.events.say("progress", line)

    async def _let_speak(self) -> None:
        """Take a text of the model, if it is a language model and it is time for one."""
        clock = self._services.seams.clock
        begun = clock.monotonic()
        if not self._sampling.due(begun):
            return
        try:
            text = await self._services.seams.compute(lambda: self._sampling.take(self.policy.readout()))
        except UsageError as problem:
            text = ""
            self._warn("sample", f"no text of the model: {problem}")
        self._sampling.done(begun, clock.monotonic())
        self.train_progress.sample = text
        if text:
            self._services.events.say("sample", f"the model writes: {' '.join(text.split())}")

    def evaluate(self) -> Evaluation:
        """Heavy. Evaluate the read-out on all of the task's test data."""
        return self.trainer.evaluate(self.policy.readout())

    def evaluate_alone(self, seed: int) -> Evaluation:
        """Heavy. Train a model as many steps on this node's own samples alone, and evaluate it."""
        rows = self.model_host.rows if self._setup.rows is None else self._setup.rows
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
        """Gives shards that are only here to others, before this node leaves."""
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

    def status(self) -> JobStatus:
        return job_status(self, self.members.circle.name, self._setup.plan.aim, self._services.identity.peer_id)
