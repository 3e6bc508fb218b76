"""Prepares an actors job: from a plan in the manifest and a user's task to a job where the run stands."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from ...circles.founding import circle_lineage
from ...compression.selector import run_now
from ...compression.weights import Units, from_units, to_units
from ...config.options import TrainOptions
from ...discovery.services import Services
from ...merging.deltaset.set import weights_hash
from ...merging.policy import Policy, PolicySetup
from ...storage.files import Storage
from ...tasks.find import make_policy_task
from ...training.background import BackgroundWorker
from ...wire.errors import UsageError
from ..contract import JobContext, JobKind, own_seed
from ..model.policies import known_policy
from ..train.saved_task import load_task_options, save_task
from .critic import Critic, critic_layout, first_weights
from .job import ActorsJob
from .learner import PolicyLearner
from .plan import ActorsOptions, ActorsPlan, check_settings, read_options, read_plan
from .task import PolicyTask

MERGING = {"density": 1.0, "bits": 8.0, "gamma": 1.0}  # the critic is small: entries carry all weights, and add a mean


async def found(options: ActorsOptions, services: Services) -> dict[str, Any]:
    """The plan of an actors job founded with these options, for the run's manifest."""
    plan = ActorsPlan(services.seams.rng.getrandbits(60), options.settings)
    await services.seams.compute(partial(open_learner, plan, options, 0))  # a slip in the task shows here
    written: dict[str, Any] = msgspec.to_builtins(plan)
    return written


def open_learner(plan: ActorsPlan, options: ActorsOptions, seed: int) -> PolicyLearner | None:
    """Heavy. The learner of this node's task; None where the user named none."""
    if options.task is None:
        return None
    return PolicyLearner(open_task(options), plan, seed)


def with_saved_task(options: ActorsOptions, storage: Storage, folder: str) -> ActorsOptions:
    """The options with the task of the last start, where the user names none; a task that is named is remembered."""
    if options.task is None:
        saved = load_task_options(storage, folder, TrainOptions()).task
        return options if saved is None else msgspec.structs.replace(options, task=saved)
    if isinstance(options.task, str):
        save_task(storage, folder, TrainOptions(task=options.task))
    return options


def open_task(options: ActorsOptions) -> PolicyTask:
    """The user's task; UsageError when there is none of that name, TaskProblem when its code raises."""
    if isinstance(options.task, PolicyTask):
        return options.task
    task: PolicyTask = make_policy_task(options.task, options.task_options, PolicyTask)
    return task


async def prepare(entry: dict[str, Any], options: ActorsOptions, context: JobContext) -> ActorsJob:
    """An actors job that has its own saved progress, the critic of a member, or the first weights to go on from."""
    plan, services = read_plan(entry), context.services
    seams, settings = services.seams, plan.settings
    check_settings(plan, options)
    options = await seams.compute(partial(with_saved_task, options, seams.storage, context.folder))
    learner = await seams.compute(partial(open_learner, plan, options, own_seed(context)))
    weights = to_units(first_weights(settings.features, settings.width, plan.seed))
    genesis = weights_hash(weights)
    policy = await seams.compute(partial(fresh_policy, plan, weights, genesis, context))
    critic = Critic(settings.features, settings.width, from_units(weights), own_seed(context))
    job = ActorsJob(context, policy, plan, options, critic, learner, genesis)
    what = "keeping the critic" if learner is None else f"learning {learner.name}"
    if await job.resume():
        services.events.say("resumed learning", f"{what} after {job.train_progress.rounds} rounds of the critic")
        return job
    caught_up = await job.catch_up()
    where = "with the critic of the others" if caught_up else "with a new critic"
    services.events.say("caught up" if caught_up else "learning", f"{what}, {where}")
    await job.save()  # what is published from now on has something to follow
    return job


def fresh_policy(plan: ActorsPlan, weights: Units, genesis: bytes, context: JobContext) -> Policy:
    """The merge policy of the critic at its first weights."""
    layout = critic_layout(plan.settings.features, plan.settings.width)
    origin = PolicySetup(
        genesis=weights,
        identity=context.services.identity,
        lineage=circle_lineage(genesis, "").hex(),
        model=context.name,
        layout=layout.hash,
        settings=MERGING,
        seed=plan.seed,
        layers=layout.layer_sizes,
        background=BackgroundWorker() if context.services.seams.threaded else run_now,
    )
    return known_policy("deltaset")(origin)


def check(entry: dict[str, Any] | None, options: ActorsOptions, storage: Storage, folder: str) -> None:
    """What this machine can tell of the options before it is in touch with others."""
    if options.until is not None and options.until.what == "accuracy":
        raise UsageError("--until accuracy is about models that classify; use steps:N, rounds:N or time:30m")
    if entry is not None:
        check_settings(read_plan(entry), options)
    if options.task is not None:
        open_task(options)


KIND = JobKind(read_options, found, prepare, check)
