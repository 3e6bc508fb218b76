"""Prepares a pipeline job: from a plan in the manifest to a job that knows the model's blocks and its own data."""

from __future__ import annotations

from typing import Any

import psutil

from ...config.options import DEFAULT_AIM, DEFAULT_POLICY, DEFAULT_ROUND_SECONDS, TrainOptions
from ...discovery.services import Services
from ...storage.files import Storage
from ...tasks.data import Data, as_data, as_test_data, hash_columns
from ...tasks.errors import task_errors
from ...tasks.task import Task
from ...training.host import choose_device
from ...wire.errors import LocalProblem, UsageError
from ..contract import JobContext, JobKind
from ..model.policies import check_policy
from ..train.binding import check_plan, open_task, task_options_of
from ..train.plan import TrainPlan
from .job import PipelineJob
from .local_blocks import ENDS, LocalBlocks, ModelOutline
from .placement import BYTES_PER_PARAMETER
from .plan import PipelineOptions, PipelinePlan, largest_micro_batch, read_options, read_plan, write_pipeline_plan

MEMORY_SHARE = 0.5  # of the free memory, where the user sets no limit
GOALS = ("steps", "time")


async def found(options: PipelineOptions, services: Services) -> dict[str, Any]:
    """The plan of a pipeline founded with these options, for the run's manifest."""
    if not options.drives:
        raise UsageError("--serve-only is for joining a run; whoever founds a pipeline gives it a task and data")
    seed = services.seams.rng.getrandbits(60)
    return await services.seams.compute(lambda: write_pipeline_plan(make_pipeline_plan(options, seed)))


def make_pipeline_plan(options: PipelineOptions, seed: int) -> PipelinePlan:
    """Heavy. The plan that a founder signs. The whole model is built for a moment. UsageError in one line."""
    task = open_task(options.train)
    train, _ = open_data(task)
    outline = ModelOutline(task, seed)
    hidden = _hidden_shape(outline, train)
    micro_batch = largest_micro_batch(hidden, options.bits, options.micro_batch)
    batch = max(micro_batch, options.batch or task.batch_size)
    return PipelinePlan(
        _train_plan(outline, options.train, seed, train),
        outline.blocks,
        hidden,
        micro_batch,
        batch,
        options.bits,  # type: ignore[arg-type]
    )


def open_data(task: Task) -> tuple[Data, Data]:
    """The data of a node that drives: to train and to test on."""
    with task_errors(task, "data"):
        train = as_data(task.data())
    if train.is_stream:
        raise UsageError("a pipeline cannot train on a stream; use data that can be read by row")
    with task_errors(task, "test_data"):
        return train, as_test_data(task.test_data())


def _hidden_shape(outline: ModelOutline, data: Data) -> tuple[int, ...]:
    """The shape of one sample's hidden states."""
    held = LocalBlocks(outline)
    held.hold(ENDS, outline.first_weights([ENDS])[ENDS])
    shape = held.enter(data.spread(1).first(1)).shape
    held.release(ENDS)
    if len(shape) < 2:
        raise UsageError(f"task {outline.task.name}: blocks(): hidden states need two dimensions or more, not {shape}")
    return tuple(shape[1:])


def _train_plan(outline: ModelOutline, options: TrainOptions, seed: int, data: Data) -> TrainPlan:
    """What members must agree on about the model. The genesis is hashed part by part."""
    policy, task = options.policy or DEFAULT_POLICY, outline.task
    check_policy(policy, options.settings)
    with task_errors(task, "probe"):
        probe = hash_columns(task.probe())
    return TrainPlan(
        task=task.name,
        version=task.version,
        options=task.options,
        parameters=outline.layout.size,
        layout=outline.layout.hash,
        genesis=outline.genesis,
        probe=probe,
        data=data.hash(),
        seed=seed,
        policy=policy,
        settings=dict(options.settings),
        round_seconds=options.round_seconds or DEFAULT_ROUND_SECONDS,
        max_steps=options.max_steps,
        steps=int(options.until.amount) if options.until is not None and options.until.what == "steps" else 0,
        aim=options.aim or DEFAULT_AIM,
    )


async def prepare(entry: dict[str, Any], options: PipelineOptions, context: JobContext) -> PipelineJob:
    """A pipeline job; it takes its blocks from disk or from others when it runs."""
    plan, services, seams = read_plan(entry), context.services, context.services.seams
    check_plan(plan.train, options.train)
    await services.limiter.free()
    task = open_task(task_options_of(plan.train, options.train), installed_only=options.train.task is None)
    outline = await seams.compute(lambda: ModelOutline(task, plan.train.seed, options.train.device))
    if outline.layout.hash != plan.train.layout or outline.blocks != plan.blocks:
        raise UsageError(f"this node's model of {plan.train.task!r} is not the run's; install the same version")
    if outline.genesis != plan.train.genesis:
        raise LocalProblem(
            "this machine makes other first weights than the run's from its seed, so it cannot hold a block; "
            "install the founder's version of torch"
        )
    data = await seams.compute(lambda: open_data(task)) if options.drives else None
    capacity = blocks_that_fit(outline, options, simulated=seams.host is None) if options.serves else 0
    return PipelineJob(context, plan, options, outline, capacity, data)


def blocks_that_fit(outline: ModelOutline, options: PipelineOptions, simulated: bool) -> int:
    """How many blocks this node may hold; LocalProblem when that is none."""
    limit = options.memory
    if limit is None and not simulated:
        limit = int(MEMORY_SHARE * psutil.virtual_memory().available)
    most = min(options.span or outline.blocks, outline.blocks)
    if limit is None:
        return most
    ends = outline.parts.ends.size * BYTES_PER_PARAMETER if options.drives else 0
    each = max(part.size for part in outline.parts.levels) * BYTES_PER_PARAMETER
    fit = int((limit - ends) // each)
    if fit < 1:
        raise LocalProblem(
            f"a block needs about {each / 1e6:,.0f} MB"
            + (f" and the ends of the model {ends / 1e6:,.0f} MB" if ends else "")
            + f", and {limit / 1e6:,.0f} MB may be used; give more memory, or use --serve-only"
        )
    return min(most, fit)


def check(entry: dict[str, Any] | None, options: PipelineOptions, storage: Storage, folder: str) -> None:
    """What this machine can tell of the options before it is in touch with others."""
    choose_device(options.train.device)
    data, until = options.train.data, options.train.until
    if data is not None and not data.exists():
        raise UsageError(f"--data {str(data)[:200]!r} does not exist; check the path")
    if until is not None and until.what not in GOALS:
        raise UsageError(f"a pipeline ends at --until steps:N or time:T, not at {until.what}")
    if entry is not None:
        check_plan(read_plan(entry).train, options.train)
    elif options.train.names_something:
        check_policy(options.train.policy, options.train.settings)
        open_task(options.train)


KIND = JobKind(read_options, found, prepare, check)
