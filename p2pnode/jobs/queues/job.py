"""The queues job of one node: it trains the models that need it most, and applies what comes to the queues it owns.

producing   choose a model → local steps → an item (on disk first) → push to the owner of its queue
owning      of the owned queues with items, the one of highest priority → one step of its log; leases
syncing     tell members what this node knows of leases and logs, and learn what they know
changing    what the founder changes while the run goes on: models added, queues paused, other weights
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from ...config.options import TrainOptions
from ...config.until import Until
from ...runtime.routes import Routes
from ...training.progress import Reached, reached
from ...training.slowdown import delayed_by_rests
from ...wire.control import ControlAnswer, ControlRequest
from ...wire.errors import LocalProblem, UsageError
from ...wire.messages import JobAnnouncement
from ...wire.status import JobStatus
from ...wire.types import Seconds
from ..contract import Job, JobContext, JobPace
from ..leases.messages import OfferLease
from ..train.export import ExportSource, write_model
from .changes import QueuesChange, read_order, signed
from .messages import GetQueue, Push, Sync
from .model import QueueModel
from .owning import Owner
from .plan import PlannedModel, QueuesPlan
from .producing import Producer
from .state import QueuesState
from .status import queues_status
from .syncing import Syncer
from .waiting import SLICE

SAVE_EVERY: Seconds = 20.0

Prepared = QueueModel | str  # a model, or why it is not trained here
PrepareModel = Callable[[PlannedModel], Awaitable[Prepared]]
PlanModel = Callable[[str], Awaitable[PlannedModel]]  # of NAME=TASK[,KEY=VALUE...]; UsageError


class QueuesJob(Job):
    """Several models that the members of a run train at once."""

    def __init__(
        self,
        context: JobContext,
        plan: QueuesPlan,
        models: dict[str, Prepared],
        preferred: Sequence[str],
        prepare_model: PrepareModel,
        plan_model: PlanModel,
        train: TrainOptions,
    ) -> None:
        super().__init__(context)
        here = {name: model for name, model in models.items() if isinstance(model, QueueModel)}
        absent = {name: reason for name, reason in models.items() if isinstance(reason, str)}
        self.state = QueuesState(context, plan, here, absent, preferred)
        self.models = here
        self._prepare_model = prepare_model
        self._plan_model = plan_model
        self._changing = asyncio.Lock()
        syncer = Syncer(self.state, self.follow)
        self.owner = Owner(self.state, syncer)
        self._until = train.until
        full_speed = train.full_speed or delayed_by_rests(train.until)
        self.producer = Producer(self.state, self.owner, syncer, full_speed)
        self._syncer = syncer
        self.routes = Routes(
            {Sync: syncer.answer, Push: self.owner.answer_push, OfferLease: self.owner.answer_offer},
            {GetQueue: syncer.stream},
        )

    # ---- life ----

    async def run(self) -> str:
        owner, producer = self.owner, self.producer
        loops = (
            producer.train, producer.push, owner.apply, owner.keep_leases, owner.look_after,
            self._syncer.ask_owners, self._syncer.ask_around, self._save_now_and_then,
        )  # fmt: skip
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(loop()) for loop in loops]
            reason = await self._goal()
            for task in running:
                task.cancel()
        return reason

    async def _goal(self) -> str:
        """Wait until the user's goal is reached, for good where there is none; returns the reason."""
        begun = self.state.now
        while True:
            await asyncio.sleep(SLICE)
            reason = "" if self._until is None else self.reason_to_end(self._until, self.state.now - begun)
            if reason:
                return reason

    def reason_to_end(self, until: Until, seconds: Seconds) -> str:
        """Why this goal is reached after `seconds`, in words; "" while it is not. Every model must have an accuracy."""
        state = self.state
        if until.what == "converged":
            return "no model gets better any more" if all(map(state.converged, self.models.values())) else ""
        facts = [model.facts(state.idle, state.now) for model in self.models.values()]
        accuracies = [one.accuracy if one is not None else None for one in facts]
        known = [accuracy for accuracy in accuracies if accuracy is not None]
        worst = min(known) if len(known) == len(accuracies) else None
        steps = sum(model.log.items for model in self.models.values()) * state.settings.steps
        return reached(
            until, Reached(self.producer.trained, seconds, worst, None, 0, steps // (len(state.members()) + 1))
        )

    async def resume(self) -> bool:
        """Go on from what this node saved; returns whether there was something."""
        change = self.state.files.load_change()
        if change is not None:
            await self.follow(change)
        found = self.state.files.load(self.models.values(), self.state.now)
        if found:
            self.state.company.expect_others()
        return found

    async def _save_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(SAVE_EVERY)
            await self.save()

    async def save(self, limit: Seconds | None = None) -> None:
        files = self.state.files
        try:
            async with asyncio.timeout(limit):
                parts = [files.collect(model) for model in self.models.values()]
                await self.context.services.seams.disk(partial(files.write, parts))
        except (LocalProblem, TimeoutError) as problem:
            self.context.services.events.say("disk", f"progress was not saved: {problem}", warning=True)

    async def hand_over(self, limit: Seconds) -> None:
        """Before leaving: give the queues to others."""
        await self.owner.give_all()

    # ---- changes ----

    async def follow(self, change: QueuesChange) -> None:
        """Go on with a newer change of the founder: prepare the models that it adds, and keep it on disk."""
        async with self._changing:
            if not self.state.is_newer(change):
                return
            files = self.state.files
            await self.context.services.seams.disk(partial(files.note_change, change))
            for planned in self.state.follow(change):
                model = await self._prepare_model(planned)
                if isinstance(model, QueueModel):
                    files.load([model], self.state.now)
                    self.models[planned.name] = model
                    self.state.say(f"the founder added the model {planned.name}")
                else:
                    self.state.absent[planned.name] = model

    async def _change(self, words: Sequence[str]) -> str:
        """What the founder's user orders; UsageError where it cannot be done. Returns what was done, in words."""
        if self.context.founder != self.state.me.peer_id:
            raise UsageError("only the run's founder can change its queues; run this command where it was founded")
        order = read_order(words, self.state.names)
        planned = await self._plan_model(order.model) if order.model else None
        await self.follow(signed(self.state.me, order.applied_to(self.state.change, planned)))
        return f"{order.said}; members follow within seconds"

    # ---- for peers and views ----

    @property
    def undone(self) -> int:
        """Steps of owners that were replaced, which this node took back."""
        return sum(model.log.taken_back for model in self.models.values())

    def announcement(self) -> JobAnnouncement:
        return JobAnnouncement(self.name, state=self.state.announcement())

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        """`export` writes one of the models, which `--job JOB/MODEL` names; `queues` changes the job."""
        if request.do == "queues":
            return ControlAnswer(said=await self._change(request.words))
        if request.do != "export":
            return await super().execute(request)
        if request.settle:
            raise UsageError("models that are learned by queues have a learning rate of their own: leave out --settle")
        name = request.job.partition("/")[2]
        if name not in self.models:
            names = [f"{self.name}/{model}" for model in self.models]
            absent = f"{name} is not trained here: {self.state.absent[name]}; " if name in self.state.absent else ""
            raise UsageError(f"{absent}say which model, as in --job {names[0]}; there are {', '.join(names)}")
        return ControlAnswer(said=await self._export(self.models[name], Path(request.file), request.shared))

    async def _export(self, model: QueueModel, file: Path, exact: bool) -> str:
        """Write the running mean of a model's weights, or the `exact` ones that members share bit by bit."""
        planned = (*self.state.plan.models, *self.state.change.models())
        plan = next(one.train for one in planned if one.name == model.name)
        run, now = self.context.calls.access.run, self.context.services.clock.now()
        source = ExportSource(run, f"{self.name}/{model.name}", plan, model.log.items, "", now)
        shared = model.shared()

        def work() -> str:
            weights, what = (shared.weights, "shared") if exact else (model.move_readout(shared), "average")
            return write_model(file, model.trainer, weights, what, source)

        return await self.context.services.seams.compute(work)

    def pace(self) -> JobPace:
        samples = sum(model.trainer.samples for model in self.models.values())
        speed = max(model.trainer.speed for model in self.models.values())
        resting = self.producer.slowed or all(self.state.paused(name) for name in self.models)
        return JobPace(self.producer.local_steps, 0 if resting else samples, speed)

    def status(self) -> JobStatus:
        return queues_status(self)
