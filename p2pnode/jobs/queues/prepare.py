"""Prepares a queues job: from a plan in the manifest to a job that stands where the run stands."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from ...config.options import TrainOptions
from ...discovery.services import Services
from ...storage.files import Storage
from ...wire.errors import LocalProblem, UsageError, suggestion
from ..contract import JobContext, JobKind, own_seed
from ..train.binding import check_model, follow_plan, make_plan, open_model_host, open_task
from ..train.prepare import own_rows
from .job import QueuesJob
from .model import QueueModel
from .plan import (
    PlannedModel,
    QueuesOptions,
    QueuesPlan,
    read_added,
    read_options,
    read_plan,
    target_of,
    write_model_plan,
)


async def found(options: QueuesOptions, services: Services) -> dict[str, Any]:
    """The plan of a queues job founded with these options, for the run's manifest."""
    if not options.models:
        raise UsageError("queues need two models or more; name each as --model NAME=TASK")
    _check_preferred(options, list(options.models))
    seed = services.seams.rng.getrandbits(60)
    models = [await plan_model(name, train, seed, services) for name, train in options.models.items()]
    plan: dict[str, Any] = msgspec.to_builtins(QueuesPlan(tuple(models), options.settings))
    plan["models"] = [write_model_plan(model) for model in models]
    return plan


async def prepare(entry: dict[str, Any], options: QueuesOptions, context: JobContext) -> QueuesJob:
    """A queues job that has its own saved progress, or the first weights; members tell it what they have since."""
    plan, services = read_plan(entry), context.services
    await services.limiter.free()
    preparing = ModelPreparer(plan, options, context)
    models = {planned.name: await preparing.prepare(planned) for planned in plan.models}
    if all(isinstance(found, str) for found in models.values()):
        raise LocalProblem(f"none of the run's models can be trained here: {next(iter(models.values()))}")
    _check_preferred(options, list(models))
    job = QueuesJob(context, plan, models, options.prefer, preparing.prepare, preparing.plan, options.node)
    if await job.resume():
        services.events.say("resumed learning", f"going on with {', '.join(job.models)}")
    return job


class ModelPreparer:
    """Makes the models of a queues job: from their plans, and plans of those that the founder adds."""

    def __init__(self, plan: QueuesPlan, options: QueuesOptions, context: JobContext) -> None:
        self._settings = plan.settings
        self._options = options
        self._context = context

    async def prepare(self, planned: PlannedModel) -> QueueModel | str:
        """One model, or why this machine does not train it. UsageError when its user wants what the run does not."""
        context, seams, train = self._context, self._context.services.seams, planned.train
        own = self._options.models.get(planned.name, self._options.node)
        try:
            host = await seams.compute(lambda: follow_plan(train, own, seams.shared))
            await seams.compute(lambda: check_model(train, host, seams.shared))
        except (LocalProblem, UsageError) as problem:
            if isinstance(problem, UsageError) and planned.name in self._options.models:
                raise  # what the user wrote is wrong
            context.services.events.say("queue", f"{planned.name} is not trained here: {problem}", warning=True)
            return str(problem)
        founder = context.founder == context.services.identity.peer_id
        rows = await seams.compute(lambda: own_rows(host, own, train, founder))
        scope, now = f"{context.calls.scope}/{planned.name}", seams.clock.monotonic()
        me, seed = context.services.identity, own_seed(context)
        return await seams.compute(
            lambda: QueueModel(planned, scope, me, host, rows, seed, self._settings, seams.speed, now)
        )

    async def plan(self, written: str) -> PlannedModel:
        """The plan of a model written as NAME=TASK[,KEY=VALUE...]; UsageError or LocalProblem in one line."""
        services = self._context.services
        name, train = read_added(written, self._options.node)
        return await plan_model(name, train, services.seams.rng.getrandbits(60), services)


async def plan_model(name: str, train: TrainOptions, seed: int, services: Services) -> PlannedModel:
    """What members must agree on to train a model."""
    host = await services.seams.compute(partial(open_model_host, train, seed, shared=services.seams.shared))
    return PlannedModel(name, make_plan(host, train, seed), target_of(name, train.until))


def check(entry: dict[str, Any] | None, options: QueuesOptions, storage: Storage, folder: str) -> None:
    """What this machine can tell of the options before it is in touch with others."""
    _check_preferred(options, list(options.models) if entry is None else [one.name for one in read_plan(entry).models])
    if entry is None:
        for train in options.models.values():
            open_task(train)


def _check_preferred(options: QueuesOptions, names: list[str]) -> None:
    """UsageError when a queue that this node wants to own is none of the run's; without names nothing is known yet."""
    for queue in options.prefer:
        if names and queue not in names:
            raise UsageError(f"the run has no queue {queue[:60]!r}; {suggestion(queue, names)}")


KIND = JobKind(read_options, found, prepare, check)
