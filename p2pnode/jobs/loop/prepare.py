"""Prepares a loop job: from a loop in this process and a plan in the manifest to a job where the run stands."""

from __future__ import annotations

from typing import Any

from ...circles.founding import circle_lineage
from ...compression.selector import run_now
from ...compression.weights import Units, to_units
from ...config.options import DEFAULT_AIM, DEFAULT_POLICY, DEFAULT_ROUND_SECONDS
from ...discovery.services import Services
from ...merging.deltaset.set import weights_hash
from ...merging.policy import Policy, PolicySetup
from ...similarity.partners import partner_settings, without_partner_settings
from ...storage.files import Storage
from ...training.background import BackgroundWorker
from ...wire.errors import LocalProblem, UsageError
from ...wire.ids import Identity
from ...wire.status import MAIN_JOB
from ..contract import JobContext, JobKind, JobSettings
from ..model.policies import check_policy, known_policy
from .genesis import fetch_genesis, genesis_file, keep_genesis, own_genesis, saved_genesis
from .job import LoopJob, LoopOptions
from .judge import NoFingerprint
from .plan import LoopPlan, difference, different_samples, pack_rows, read_plan, rows_hash, unpack_rows, write_plan
from .source import LoopSource

GIVEN = "loop"  # under which the source is among the job's options


def read(settings: JobSettings) -> LoopOptions:
    """The options of this node; UsageError where no training loop of this process is meant."""
    source = settings.given.get(GIVEN)
    if not isinstance(source, LoopSource):
        raise UsageError(
            "the members of this run train in loops of their own; take part from yours: "
            "p2pnode.join(model, optimizer, CODE)"
        )
    own = settings.node.train
    return LoopOptions(
        source, own.policy, own.settings, own.round_seconds, own.aim, own.max_steps, own.until, own.max_disk
    )


async def found(options: LoopOptions, services: Services) -> dict[str, Any]:
    """The plan of a run founded with the weights that the loop has now."""
    seed = services.seams.rng.getrandbits(60)
    return write_plan(await services.seams.compute(lambda: _plan(options, seed, services.identity)))


def _plan(options: LoopOptions, seed: int, identity: Identity) -> LoopPlan:
    source, policy = options.source, options.policy or DEFAULT_POLICY
    check_policy(policy, options.settings or {})
    try:
        genesis = to_units(source.handover.begun)
    except ValueError as error:
        raise UsageError(f"the model cannot be shared: {error}; load or initialise it anew") from None
    plan = LoopPlan(
        task=source.task,
        version=source.version,
        parameters=source.layout.size,
        layout=rows_hash(source.rows),
        genesis=weights_hash(genesis).hex(),
        seed=seed,
        table=pack_rows(source.rows),
        buffers=source.buffers,
        probe="" if source.probe is None else source.probe.hash,
        policy=policy,
        settings=dict(options.settings or {}),
        round_seconds=options.round_seconds or DEFAULT_ROUND_SECONDS,
        max_steps=options.max_steps,
        aim=options.aim or DEFAULT_AIM,
        samples=() if source.share is None else source.share.columns(),
    )
    fresh_policy(plan, source, genesis, identity)  # a slip in a setting shows here, not at those who join
    return plan


def check_source(plan: LoopPlan, options: LoopOptions) -> None:
    """UsageError when the loop's model, or what its user wants, is not the run's."""
    source = options.source
    if source.buffers != plan.buffers:
        raise UsageError(f"buffers={source.buffers!r} contradicts the run, which has {plan.buffers!r}; leave it out")
    if rows_hash(source.rows) != plan.layout:
        raise UsageError(
            f"this model is not the run's ({plan.task!r}): {difference(unpack_rows(plan.table), source.rows)}; use the "
            "founder's model, or give another data_dir= or found=True for a run of its own"
        )
    for what, own, theirs in (("version", source.version, plan.version), ("task", source.task, plan.task)):
        if own != theirs:
            raise UsageError(f"{what}={own!r} here, and the run has {theirs!r}; use the founder's, or found=True")
    _check_samples(plan, source)
    wishes: list[tuple[str, object, object]] = [
        ("policy", options.policy, plan.policy),
        ("aim", options.aim, plan.aim),
        ("round_seconds", options.round_seconds, plan.round_seconds),
        *((f"settings: {key}", value, plan.settings.get(key)) for key, value in (options.settings or {}).items()),
    ]
    for what, wanted, planned in wishes:
        if wanted is not None and wanted != planned:
            fixed = "does not set it" if planned is None else f"has {planned}"
            raise UsageError(f"{what}={wanted} contradicts the run, which {fixed}; leave it out, or found=True")


def _check_samples(plan: LoopPlan, source: LoopSource) -> None:
    if source.share is None:
        return
    if not plan.samples:
        raise UsageError("share= is given here, and the run's founder shares no data; leave it out, or found=True")
    different = different_samples(plan.samples, source.share.form())
    if different:
        raise UsageError(f"share= is not data of this run: {different}; leave it out, or use the founder's form")


def check(entry: dict[str, Any] | None, options: LoopOptions, storage: Storage, folder: str) -> None:
    """Compare the loop's model with a plan that is known here. UsageError says which parameter differs."""
    if entry is None:
        check_policy(options.policy, options.settings or {})
    else:
        check_source(read_plan(entry), options)


async def prepare(entry: dict[str, Any], options: LoopOptions, context: JobContext) -> LoopJob:
    """A loop job that has its own saved progress, a member's snapshot, or the genesis to go on from."""
    plan, services, source = read_plan(entry), context.services, options.source
    seams, storage = services.seams, services.seams.storage
    check_source(plan, options)
    genesis = await seams.compute(lambda: saved_genesis(storage, context.folder, plan))
    begins = False  # whether the loop's own weights are where the run begins
    if genesis is None:
        genesis = await seams.compute(lambda: own_genesis(source.handover.begun, plan))
        begins = genesis is not None
        if genesis is None:
            if storage.read(genesis_file(context.folder)) is not None:
                services.events.say("damaged", f"{storage.path(genesis_file(context.folder))} is damaged", warning=True)
                storage.delete(genesis_file(context.folder))
            genesis = await fetch_genesis(plan, services, context.calls, context.members)
        try:
            units = genesis
            await seams.compute(lambda: keep_genesis(storage, context.folder, units))
        except LocalProblem as problem:
            services.events.say("disk", f"the run's first weights are not saved: {problem}", warning=True)
    background = BackgroundWorker() if seams.threaded else run_now
    policy = fresh_policy(plan, source, genesis, services.identity, context.name, background, context)
    job = LoopJob(context, policy, plan, options)
    await job.hand_first(founded=await _find_start(job, services) and begins)
    return job


async def _find_start(job: LoopJob, services: Services) -> bool:
    """Resume what this node saved, else catch up with the run, else begin at the first weights: then returns True."""
    task = job.plan.task
    if await job.resume():
        services.events.say("resumed learning", f"going on with {task} after {job.train_progress.rounds} rounds")
        return False
    caught_up = await job.catch_up(NoFingerprint())
    if caught_up:
        await job.learn_steps(job.members.in_circle())
        services.events.say("caught up", f"learning {task} from where the run stands")
    else:
        services.events.say("learning", f"learning {task} from its beginning")
    await job.save()  # what is published from now on has something to follow
    return not caught_up


def fresh_policy(
    plan: LoopPlan,
    source: LoopSource,
    genesis: Units,
    identity: Identity,
    job: str = MAIN_JOB,
    background: Any = run_now,
    context: JobContext | None = None,
) -> Policy:
    """The plan's policy at the first weights; UsageError when it is not installed or refuses its settings."""
    origin = PolicySetup(
        genesis=genesis,
        identity=identity,
        lineage=circle_lineage(bytes.fromhex(plan.genesis), "").hex(),
        model=job,
        layout=plan.layout,
        settings=without_partner_settings(plan.settings),
        seed=plan.seed,
        layers=source.layout.layer_sizes,
        background=background,
        founder=context.founder if context is not None and context.alone else "",
        moderators=() if context is None else context.moderators,
    )
    try:
        partner_settings(plan.settings)
        return known_policy(plan.policy)(origin)
    except ValueError as error:
        raise UsageError(f"the run cannot be learned with these settings: {error}") from None


KIND = JobKind(read, found, prepare, check)
