"""Prepares a train job: from a plan in the manifest to a job that stands where the run stands."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from ...circles.founding import circle_lineage
from ...compression.selector import Background, run_now
from ...compression.weights import to_units
from ...config.options import TrainOptions
from ...config.split import Split, SplitPart
from ...discovery.services import Services
from ...merging.policy import Policy, PolicySetup
from ...runtime.events import Events
from ...shards.rows import Rows
from ...shards.split import check_stream_split, part_rows
from ...similarity.partners import partner_settings, without_partner_settings
from ...storage.files import Storage
from ...tasks.find import OtherKindOfTask
from ...training.background import BackgroundWorker
from ...training.fingerprinter import Fingerprinter
from ...training.host import ModelHost, choose_device
from ...training.threads import choose_threads
from ...wire.errors import LocalProblem, UsageError
from ...wire.ids import Identity
from ...wire.status import MAIN_JOB
from ...wire.types import Seconds
from ..contract import JobContext, JobKind, JobSettings
from ..model.policies import check_policy, known_policy
from .binding import (
    check_model,
    check_plan,
    data_hash,
    follow_plan,
    has_genesis,
    make_plan,
    open_model_host,
    open_task,
    probe_hash,
)
from .job import TrainJob
from .options import TrainSetup
from .plan import TrainPlan, read_plan, write_plan
from .saved_task import save_task
from .task_source import keep_copy, task_options, task_package, task_source

ASK_PAUSE: Seconds = 1.0
ASKS_WITH_GENESIS = 3  # how often members are asked for a snapshot before starting from genesis


def read(settings: JobSettings) -> TrainOptions:
    """The training options of the node, with those given for this job."""
    return settings.node.train_options(settings.name, settings.alone)


async def found(options: TrainOptions, services: Services) -> dict[str, Any]:
    """The plan of a job founded for a task, for the run's manifest."""
    seed = services.seams.rng.getrandbits(60)
    plan = await services.seams.compute(lambda: _checked_plan(options, seed, services))
    source, note = task_source(options.task)
    if note:
        services.events.say("task", note)
    package = None if source else task_package(plan.task)
    return write_plan(msgspec.structs.replace(plan, source=source, package=package))


def _checked_plan(options: TrainOptions, seed: int, services: Services) -> TrainPlan:
    model_host = open_model_host(options, seed, shared=services.seams.shared)
    plan = make_plan(model_host, options, seed)
    own_rows(model_host, options, plan, founded=True)
    fresh_policy(plan, model_host, services.identity)  # a slip in a setting shows here, not at those who join
    return plan


async def prepare(entry: dict[str, Any], options: TrainOptions, context: JobContext) -> TrainJob:
    """A train job that has its own saved progress, a member's snapshot, or the genesis to go on from."""
    plan, services, seams = read_plan(entry), context.services, context.services.seams
    await services.limiter.free()
    options, _ = task_options(plan, options, seams.storage, context.folder)
    model_host = await seams.compute(lambda: follow_plan(plan, options, seams.shared))
    confirmed = await seams.compute(lambda: check_model(plan, model_host, seams.shared))
    try:
        save_task(seams.storage, context.folder, options)
        keep_copy(plan, options, seams.storage, context.folder)
    except LocalProblem as problem:
        services.events.say(
            "disk", f"the task is not remembered, so give --task next time too: {problem}", warning=True
        )
    if seams.threaded:
        await seams.compute(lambda: choose_threads(model_host, services.limiter.cores))
    founded = context.founder == services.identity.peer_id
    rows = await seams.compute(lambda: own_rows(model_host, options, plan, founded))
    background = BackgroundWorker() if seams.threaded else run_now
    policy = fresh_policy(
        plan,
        model_host,
        services.identity,
        context.name,
        options.circle,
        background,
        context.founder if context.alone and not options.circle else "",
        context.moderators,
    )
    fingerprinter = await comparing(model_host, plan, services)
    same_probe = await seams.compute(lambda: probe_hash(model_host) == plan.probe)
    setup = TrainSetup(plan, options, rows, confirmed, same_probe)
    job = TrainJob(context, model_host, policy, setup, fingerprinter)
    await _find_start(job, plan, services)
    return job


def check(entry: dict[str, Any] | None, options: TrainOptions, storage: Storage, folder: str) -> None:
    """What this machine can tell of a node's options before it is in touch with others. Imports torch, reads no data.

    UsageError or LocalProblem says what is wrong. `entry` is the run's plan where it is known.
    """
    choose_device(options.device)
    plan = None if entry is None else read_plan(entry)
    if plan is not None:
        options, _ = task_options(plan, options, storage, folder)
    if options.data is not None and not options.data.exists():
        raise UsageError(f"--data {str(options.data)[:200]!r} does not exist; check the path")
    if plan is not None:
        check_plan(plan, options)
        return
    check_policy(options.policy, options.settings)
    if options.task is not None:
        with contextlib.suppress(OtherKindOfTask):  # the run that this node joins may do that kind of work
            open_task(options)


KIND = JobKind(read, found, prepare, check)


async def comparing(model_host: ModelHost, plan: TrainPlan, services: Services) -> Fingerprinter | None:
    """Make what compares this node's model with others. Returns None, with a warning, if that fails."""
    found, why = await services.seams.compute(lambda: _fingerprinter(model_host, plan))
    if why:
        text = f"this node's model cannot be compared with those of others: {why}"
        services.events.say("fingerprint", text, warning=True)
    return found


def _fingerprinter(model_host: ModelHost, plan: TrainPlan) -> tuple[Fingerprinter | None, str]:
    """The fingerprinter and what is wrong with it, if anything: models can only be compared on the same inputs."""
    try:
        found = Fingerprinter(model_host, plan.seed)
        same = probe_hash(model_host) == plan.probe
    except (LocalProblem, ValueError) as problem:
        return None, str(problem)
    return found, "" if same else "its probe is not the run's; are the task's data here another version?"


def fresh_policy(
    plan: TrainPlan,
    model_host: ModelHost,
    identity: Identity,
    job: str = MAIN_JOB,
    circle: str = "",
    background: Background = run_now,
    founder: str = "",
    moderators: tuple[str, ...] = (),
) -> Policy:
    """The plan's policy at the first weights; UsageError when it is not installed or refuses its settings."""
    lineage = circle_lineage(bytes.fromhex(plan.genesis), circle)
    origin = PolicySetup(
        genesis=to_units(model_host.genesis),
        identity=identity,
        lineage=lineage.hex(),
        model=job,
        layout=plan.layout,
        settings=without_partner_settings(plan.settings),
        seed=plan.seed,
        layers=model_host.layout.layer_sizes,
        background=background,
        founder=founder,
        moderators=moderators,
        planned_steps=plan.steps,
    )
    try:
        partner_settings(plan.settings)
        return known_policy(plan.policy)(origin)
    except ValueError as error:
        raise UsageError(f"the run cannot be learned with these settings: {error}") from None


async def _find_start(job: TrainJob, plan: TrainPlan, services: Services) -> None:
    """Resume what this node saved, else catch up with the run, else begin at the first weights."""
    if await job.resume():
        services.events.say("resumed learning", f"going on with {plan.task} after {job.train_progress.rounds} rounds")
        return
    if await catch_up(job, has_genesis(plan, job.model_host), services.events):
        services.events.say("caught up", f"learning {plan.task} from where the run stands")
    else:
        services.events.say("learning", f"learning {plan.task} from its beginning")
    await job.save()  # what is published from now on has something to follow


async def catch_up(job: TrainJob, genesis: bool, events: Events) -> bool:
    """Catch up with a member: by its entries while they are few, else by its snapshot. Returns whether that worked.

    Without the genesis a snapshot is the only way in, so it is asked for again and again.
    """
    asked, circle_driver, look = 0, job.circle_driver, job.newcomer_probe()
    while True:
        if circle_driver is not None and await circle_driver.enter(look):
            return True
        members = job.members.in_circle()
        if genesis and members and await job.partner_exchange.catch_up_by_entries(members):
            return True
        if members and await job.snapshots.adopt_from(members):
            return True
        asked += 1
        if genesis and (not members or asked >= ASKS_WITH_GENESIS):
            return False
        if asked == ASKS_WITH_GENESIS:
            text = (
                "no member gives its weights, and the run's first ones cannot be made here; waiting for one that does"
            )
            events.say("waiting", text, warning=True)
        await asyncio.sleep(ASK_PAUSE)


def own_rows(model_host: ModelHost, options: TrainOptions, plan: TrainPlan, founded: bool) -> Rows | None:
    """The rows this node trains on: those an experiment assigns, or all of the user's own data.

    None where all members have the same data and each takes a part.
    """
    if model_host.data.is_stream:
        if options.share_data:
            raise UsageError("--share-data: a stream has no shards that could travel; leave it out")
        check_stream_split(options.split)
        return model_host.rows
    if options.split is not None and options.part is not None:
        return fixed_rows(model_host, options.split, options.part)
    if options.data is None or (not founded and data_hash(model_host) == plan.data):
        return None
    return model_host.rows


def fixed_rows(model_host: ModelHost, split: Split, part: SplitPart) -> Rows:
    """The rows of one part of the data, as an experiment assigns them."""
    return part_rows(model_host.labels, model_host.samples, split, part)
