"""The loop job: a user's training loop makes the steps, the node shares them. Neither waits for the other.

loop      steps … copy of the weights at a round's end … steps … merged weights are added … steps
node      record → publish (journal on disk first) → merge → hand back; exchanges with partners meanwhile
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ...compression.weights import Floats
from ...config.until import Until
from ...merging.policy import Policy, RoundFacts
from ...merging.snapshots.messages import GetChunks, GetKept, GetSnapshot, SnapshotRequest
from ...network.base import Payload
from ...runtime.routes import Routes, StreamHandler
from ...similarity.fingerprint import Projection
from ...similarity.partners import partner_settings
from ...storage.checkpoints import Arrays
from ...training.evaluation import Cadence
from ...training.fingerprinter import LEAST, SHARE_OF_TIME
from ...training.progress import reached
from ...training.rounds import local_steps, mean_steps, shortened
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import LocalProblem, NetworkDown, PeerError
from ...wire.ids import PeerId
from ...wire.messages import Message
from ...wire.status import JobState, JobStatus, ShardRow
from ...wire.types import Seconds
from ..contract import JobContext, JobPace
from ..model.job import ModelJob, SharingSetup
from ..model.status import train_state, train_status
from .genesis import GenesisOffers, first_weights
from .handover import Handover, WeightsChange, WeightsCopy
from .judge import LoopJudge
from .messages import GetSteps, StepsAre
from .plan import LoopPlan
from .replica import take_fingerprint
from .shards import LoopShards, shard_routes
from .source import LoopSource

SHORTEST_ROUND: Seconds = 0.1
LONGEST_WAIT: Seconds = 60.0  # that the cost of rounds may put between them
COST_SHARE = 0.01  # of a processor's time, for what rounds compute; the rest of the node takes about as much again
MOST_STEPS = 10_000  # that one entry may tell of (merging/deltaset/entry.py)
KNOWN_COSTS = 5  # rounds whose median cost counts
FIRST_STEPS = 5.0
LOOK_EVERY: Seconds = 0.5  # for the user's goal, while no round ends
EVALUATE_EVERY: Seconds = 2.0  # at most; an evaluate function that takes long is called more rarely
ASKED = 5  # members that a newcomer asks for the lineage's steps
PATIENCE: Seconds = 3.0
HAND_OVER_LIMIT: Seconds = 1.0  # leaving takes less than five seconds in all


@dataclass(frozen=True)
class LoopOptions:
    """What this node's user wants, besides the run's plan."""

    source: LoopSource
    policy: str | None = None
    settings: Mapping[str, float] | None = None
    round_seconds: Seconds | None = None
    aim: Any = None
    max_steps: int = 200
    until: Until | None = None
    max_disk: int | None = None


class StepCount:
    """How many steps this node's loops have made in the run, over restarts. Saved with the model (Resumable)."""

    def __init__(self, handover: Handover) -> None:
        self.before = 0  # in earlier starts, less what this loop made before it had the run's weights
        self.lead = 0  # how many steps the lineage had made when this node joined
        self._handover = handover

    def own(self, total: int | None = None) -> int:
        """The steps of this node when its loop has made `total` steps; now by default."""
        return max(0, self.before + (self._handover.total if total is None else total))

    def state(self) -> Arrays:
        return {"loop": np.array([self.own(), self.lead], np.int64)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        counts = arrays["loop"]
        if counts.shape != (2,) or (counts < 0).any():
            raise ValueError("the saved counts are damaged")
        self.before, self.lead = int(counts[0]), int(counts[1])


class LoopJob(ModelJob):
    """One model that a training loop of this process and those of other members improve together."""

    def __init__(self, context: JobContext, policy: Policy, plan: LoopPlan, options: LoopOptions) -> None:
        sharing = SharingSetup(
            bytes.fromhex(plan.genesis),
            plan.aim,
            partner_settings(plan.settings),
            plan.round_seconds,
            max_disk=options.max_disk,
            until=options.until,
            compared=False,
        )
        self.step_count = StepCount(options.source.handover)
        judge = LoopJudge(options.source, lambda: first_weights(context, plan))
        super().__init__(context, policy, sharing, self.step_count, judge)
        self.plan = plan
        self.source = options.source
        self._options = options
        self._handover = options.source.handover
        self._begun: Floats = np.empty(0, np.float32)  # where the loop's current round began
        self._wake = asyncio.Event()
        self._speed = 0.0
        self._costs: deque[Seconds] = deque(maxlen=KNOWN_COSTS)  # processor time of the latest rounds
        self._ended = self._services.seams.clock.monotonic()  # when the last round did
        self._evaluating = Cadence(self._ended, 0.0)
        self._fingerprinting = Cadence(self._ended, 0.0)
        self._projection: Projection | None = None
        self._genesis = GenesisOffers(self._services.seams, context.folder)
        streams: dict[type[Message], StreamHandler] = {
            GetSnapshot: self._stream,
            GetChunks: self._stream,
            GetKept: self._stream,
        }
        self.shards = self._make_shards(context)
        own = Routes({GetSteps: self._steps_are}, streams)
        self.routes = self.sharing_routes().plus(own).plus(shard_routes(self.shards))

    def _make_shards(self, context: JobContext) -> LoopShards | None:
        """What shares the loop's data; None where the user gave none, or the run's founder shares none."""
        data = self.source.share
        if data is None or not self.plan.samples:
            return None
        link, most = self.partner_exchange.link, self._options.max_disk
        return LoopShards(context, self.plan, data, self.members, self.similarity, link, most)

    async def _stream(self, peer: PeerId, request: SnapshotRequest) -> Payload:
        if self._genesis.wants(request):
            return await self._genesis.payload(request)
        return await self.snapshots.payload(peer, request)

    def _steps_are(self, peer: PeerId, request: GetSteps) -> StepsAre:
        return StepsAre(self.source.steps)

    # ---- life ----

    async def run(self) -> str:
        """Share what the loop learns until it ends, or until the user's goal is reached: then returns the reason."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._wake.set)

        self.train_progress.begun = self._services.seams.clock.monotonic()
        await self._prepare_probe()
        self._handover.listen(wake)
        try:
            tasks = () if self.shards is None else (self.shards.run(),)
            return await self.share_while(self._keep_sharing(), *tasks)
        finally:
            self._handover.listen(lambda: None)

    async def learn_steps(self, members: list[PeerId]) -> None:
        """Ask some members how many steps the lineage has made; the median counts."""
        asked = self._services.seams.rng.sample(members, min(ASKED, len(members)))

        async def ask(peer: PeerId) -> int | None:
            with contextlib.suppress(PeerError, NetworkDown, TimeoutError):
                return (await self.context.calls.ask(peer, GetSteps(), StepsAre, PATIENCE)).steps
            return None

        answers = [steps for steps in await asyncio.gather(*map(ask, asked)) if steps is not None]
        self.step_count.lead = int(statistics.median(answers)) if answers else 0

    async def hand_first(self, founded: bool) -> None:
        """Give the loop the weights where the run is. A founder's loop keeps the steps that it has made meanwhile."""
        seams, handover = self._services.seams, self._handover
        start = self._begun = await seams.compute(self.policy.start)
        if founded:
            handover.hand_back(WeightsChange(start - handover.begun))
        else:
            handover.hand_back(WeightsChange(start, replaces=True))
            self.step_count.before -= handover.total  # steps that led nowhere
        handover.begun = np.empty(0, np.float32)
        self._note_lineage(handover.total)
        self.source.arrived.set()

    async def _keep_sharing(self) -> str:
        clock, until = self._services.seams.clock, self._options.until
        while True:
            self._handover.end_round_after(self._steps_of_round())
            copy = await self._next_copy()
            if copy is not None:
                await self._services.limiter.free()
                await self._round(copy)
                await self._now_and_then()
            if self.source.closing.is_set() and copy is None:
                return "the training loop has ended"
            done = self.train_progress.reached(clock.monotonic(), self.source.lineage[0])
            why = "" if until is None else reached(until, done)
            if why:
                return why

    async def _next_copy(self) -> WeightsCopy | None:
        """The weights at the end of the loop's round; None when the loop has ended, or the user's goal may be reached.

        A paused node takes no copy: the round goes on until the node works again.
        """
        while True:
            self._wake.clear()
            closing = self.source.closing.is_set()
            copy = self._handover.take()
            if copy is not None or closing:
                return copy
            try:
                async with asyncio.timeout(LOOK_EVERY):
                    await self._wake.wait()
            except TimeoutError:
                if self._options.until is not None and self._options.until.what == "time":
                    return None
                await self.save_if_due()

    def _steps_of_round(self) -> int:
        """After how many steps the round under way ends."""
        plan, seams = self.plan, self._services.seams
        pace = self.policy.pace(len(self.members.active()) + 1)
        mean = mean_steps(self._speed, plan.round_seconds, plan.max_steps) if self._speed else FIRST_STEPS
        steps = local_steps(shortened(mean, pace.steps), seams.rng, plan.max_steps)
        cost = statistics.median(self._costs) if len(self._costs) == KNOWN_COSTS else 0.0  # the first ones import much
        shortest = max(SHORTEST_ROUND, min(LONGEST_WAIT, cost / COST_SHARE))
        return min(MOST_STEPS, max(steps, int(self._speed * shortest)))

    async def _round(self, copy: WeightsCopy) -> None:
        """Publish what the loop's round brought, merge what partners sent, and hand the result back to the loop."""
        seams, clock = self._services.seams, self._services.seams.clock
        begun = clock.monotonic()
        self._note_speed(copy.steps, begun)
        if not await seams.compute(lambda: bool(np.isfinite(copy.weights).all())):
            self._refuse(copy)
            return
        await self._take_fingerprint(copy.weights)
        loss, peers = self.source.losses.take(), len(self.members.active()) + 1
        budget = self.partner_exchange.link.budget(self.plan.round_seconds, peers)
        facts = RoundFacts(min(copy.steps, MOST_STEPS), loss or 0.0, 0, peers, budget)
        worked = await self._worked()
        await self.end_round(self._begun, copy.weights, facts)
        self.train_progress.loss = loss
        await self.change_circle()  # now, because the loop is handed the weights of the new circle below
        self._begun = np.empty(0, np.float32)
        self._begun, change = await seams.compute(lambda: self._merged(copy.weights))
        self._handover.hand_back(WeightsChange(change))
        self._note_lineage(copy.total)
        took = await self._worked() - worked
        self._costs.append(took)

    async def _worked(self) -> Seconds:
        """Processor time of the compute thread; in a simulation none passes."""
        seams = self._services.seams
        return await seams.compute(time.thread_time) if seams.threaded else 0.0

    def _merged(self, after: Floats) -> tuple[Floats, Floats]:
        """Where the next round begins, and the change to it from `after`, which is overwritten."""
        start = self.policy.start()
        np.subtract(start, after, out=after)
        return start, after

    def _refuse(self, copy: WeightsCopy) -> None:
        """The loop's weights are not finite: none are shared, and the loop goes on from the last good ones."""
        self.train_progress.diverged += 1
        self.source.losses.take()
        text = f"the loop's weights are not finite numbers after {copy.total} steps; it goes on from the last good ones"
        self._warn("diverged", f"{text}; a lower learning rate or gradient clipping helps")
        self._handover.hand_back(WeightsChange(self._begun.copy(), replaces=True, heals=True))

    def _note_speed(self, steps: int, now: Seconds) -> None:
        seconds, self._ended = now - self._ended, now
        if seconds > 0:
            self._speed = steps / seconds if not self._speed else 0.7 * self._speed + 0.3 * steps / seconds

    def _note_lineage(self, total: int) -> None:
        """Steps of the lineage: those reported when this node joined and its own since, or what the shared log says."""
        own = self.step_count.lead + self.step_count.own(total)
        self.source.lineage = (max(own, self.policy.pace(len(self.members.active()) + 1).at), total)

    # ---- now and then ----

    async def _prepare_probe(self) -> None:
        probe, replica = self.source.probe, self.source.replica
        if probe is None or replica is None:
            return
        if self.plan.probe and probe.hash != self.plan.probe:
            text = "this node's model is not compared with those of others: its probe= is not the founder's"
            self._services.events.say("fingerprint", text, warning=True)
            return
        try:
            self._projection = await self._services.seams.compute(lambda: probe.projection(self.plan.seed))
        except ValueError as error:
            self._services.events.say("fingerprint", f"models are not compared: {error}", warning=True)

    async def _take_fingerprint(self, weights: Floats) -> None:
        """Before the merge, so that it shows what this node's data taught."""
        seams, projection = self._services.seams, self._projection
        replica, probe, begun = self.source.replica, self.source.probe, seams.clock.monotonic()
        if projection is None or replica is None or probe is None or not self._fingerprinting.due(begun):
            return
        try:
            found = await seams.compute(lambda: take_fingerprint(replica, weights, probe, projection))
            self.similarity.took(found)
        except LocalProblem as problem:
            self.similarity.withdraw()
            self._warn("fingerprint", str(problem))
        now = seams.clock.monotonic()
        self._fingerprinting.done(begun, now, max(LEAST, (now - begun) / SHARE_OF_TIME))

    async def _now_and_then(self) -> None:
        if self.shards is not None:
            self.shards.shipping.after_round(self.train_progress.rounds)
        clock, evaluate, replica = self._services.seams.clock, self.source.evaluate, self.source.replica
        begun = clock.monotonic()
        if evaluate is not None and replica is not None and self._evaluating.due(begun):
            try:
                self.source.evaluation = self.train_progress.evaluation = await self._services.seams.compute(
                    lambda: replica.evaluate(self.policy.readout(), evaluate)
                )
                line = self.train_progress.line(begun, 0)
                if line:
                    self._services.events.say("progress", line)
            except LocalProblem as problem:
                self._warn("model", str(problem))
            self._evaluating.done(begun, clock.monotonic(), EVALUATE_EVERY)
        self._genesis.forget_old()
        await self.save_if_due()

    # ---- for peers and views ----

    @property
    def unreplicated(self) -> int:
        """How many shards leaving would take out of the swarm, as far as is known."""
        return 0 if self.shards is None or not self.shards.ready else len(self.shards.driver.unreplicated)

    async def hand_over(self, limit: Seconds) -> None:
        """Before leaving, give shards that are only here to others, as far as the time for leaving allows."""
        if self.shards is not None and self.shards.ready:
            await self.shards.driver.hand_over_all(min(limit, HAND_OVER_LIMIT))

    def shard_rows(self) -> tuple[ShardRow, ...]:
        return () if self.shards is None else self.shards.rows()

    def pace(self) -> JobPace:
        """The user's loop may rest as long as it likes."""
        return JobPace(self._handover.total, 0, self._speed)

    def status(self) -> JobStatus:
        me, shown = self._services.identity.peer_id, train_status(self)
        plan, test_loss = self.plan, shown.test_loss or None  # 0: the user's function gives none
        state, shards, data = train_state(self, me), self.shards, self.source.share
        if shards is not None and data is not None:
            state = replace(state, shards=len(shards.driver.ids()))
            shown = replace(
                shown,
                samples=len(data),
                copied=shards.shipping.copies,
                moved=shards.shipping.moves,
                data_sent_bytes=shards.shipping.sent_bytes,
                data_received_bytes=shards.received_bytes,
            )
        return JobStatus(
            state=JobState(self.members.circle.name, self._speed, train=state),
            steps=self.step_count.own(),
            community=self.similarity.communities.of.get(me, ""),
            train=replace(shown, task=plan.task, aim=plan.aim, parameters=plan.parameters, test_loss=test_loss),
        )

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        """Do what the user commands; LocalProblem or UsageError when that cannot be done."""
        from .commands import execute

        return await execute(request, self, self._services)
