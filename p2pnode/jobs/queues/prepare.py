"""Prepares a queues job: from a plan in the manifest to a job that stands where the run stands."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from ...discovery.services import Services
from ...storage.files import Storage
from ...wire.errors import LocalProblem, UsageError, suggestion
from ..contract import JobContext, JobKind, own_seed
from ..train.binding import check_model, follow_plan, make_plan, open_model_host, open_task
from ..train.plan import write_plan
from ..train.prepare import own_rows
from .job import QueuesJob
from .model import QueueModel
from .plan import PlannedModel, QueuesOptions, QueuesPlan, read_options, read_plan


async def found(options: QueuesOptions, services: Services) -> dict[str, Any]:
    """The plan of a queues job founded with these options, for the run's manifest."""
    if not options.models:
        raise UsageError("queues need two models or more; name each as --task NAME=TASK")
    _check_preferred(options, list(options.models))
    seed = services.seams.rng.getrandbits(60)
    models = []
    for name, train in options.models.items():
        host = await services.seams.compute(partial(open_model_host, train, seed, shared=services.seams.shared))
        models.append(PlannedModel(name, make_plan(host, train, seed)))
    plan: dict[str, Any] = msgspec.to_builtins(QueuesPlan(tuple(models), options.settings))
    plan["models"] = [{"name": model.name, "train": write_plan(model.train)} for model in models]
    return plan


async def prepare(entry: dict[str, Any], options: QueuesOptions, context: JobContext) -> QueuesJob:
    """A queues job that has its own saved progress, or the first weights; members tell it what they have since."""
    plan, services = read_plan(entry), context.services
    await services.limiter.free()
    models: dict[str, QueueModel] = {}
    for planned in plan.models:
        model = await _prepare_model(planned, plan, options, context)
        if model is not None:
            models[planned.name] = model
    if not models:
        raise LocalProblem("none of the run's models can be trained here")
    _check_preferred(options, [planned.name for planned in plan.models])
    job = QueuesJob(context, plan, models, options.prefer)
    if job.resume():
        services.events.say("resumed learning", f"going on with {', '.join(models)}")
    return job


async def _prepare_model(
    planned: PlannedModel, plan: QueuesPlan, options: QueuesOptions, context: JobContext
) -> QueueModel | None:
    """One model; None, with a warning, when this machine cannot train it and has others to train."""
    services, seams, train = context.services, context.services.seams, planned.train
    own = options.models.get(planned.name, options.node)
    try:
        host = await seams.compute(lambda: follow_plan(train, own, seams.shared))
        await seams.compute(lambda: check_model(train, host, seams.shared))
    except LocalProblem as problem:
        services.events.say("queue", f"{planned.name} is not trained here: {problem}", warning=True)
        return None
    rows = await seams.compute(lambda: own_rows(host, own, train, context.founder == services.identity.peer_id))
    scope, now = f"{context.calls.scope}/{planned.name}", seams.clock.monotonic()
    return await seams.compute(
        lambda: QueueModel(
            planned.name, scope, services.identity, host, rows, own_seed(context), plan.settings, seams.speed, now
        )
    )


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
