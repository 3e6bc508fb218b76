"""Prepares a paths job: from a plan in the manifest to a job with routed data."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...compression.weights import Floats
from ...discovery.services import Services
from ...runtime.seams import Seams
from ...shards.rows import Rows, RowSet
from ...storage.files import Storage
from ...tasks.blocks import layer_parameters
from ...training.host import ModelHost, choose_device
from ...training.threads import choose_threads
from ...wire.errors import LocalProblem, UsageError
from ...wire.status import JobTable
from ..blocks.layout import ModelParts, cut_model
from ..contract import JobContext, JobKind
from ..model.policies import check_policy
from ..train.binding import check_model, check_plan, follow_plan, has_genesis, make_plan, open_model_host, open_task
from ..train.prepare import own_rows
from .job import PathsJob
from .plan import PathsOptions, PathsPlan, read_options, read_plan, write_paths_plan
from .router import Paths
from .routing import ROUTER_COLUMNS, document_numbers, found_router, route_samples, router_rows
from .setup import PathsSetup


async def found(options: PathsOptions, services: Services) -> dict[str, Any]:
    """The plan of a paths job founded with these options, for the run's manifest."""
    seed = services.seams.rng.getrandbits(60)
    return await services.seams.compute(lambda: write_paths_plan(make_paths_plan(options, seed, services.seams)))


def make_paths_plan(options: PathsOptions, seed: int, seams: Seams) -> PathsPlan:
    """Heavy. The plan that a founder signs: its model, and the router of its data. UsageError in one line."""
    grid = options.grid
    host = open_model_host(options.train, seed, shared=seams.shared)
    model_parts(host, grid.levels)
    train = make_plan(host, options.train, seed)
    router, paths = found_router(host, options, seed)
    samples = np.bincount(paths, minlength=grid.paths).tolist()
    return PathsPlan(train, grid.levels, grid.options, grid.sharing, router, tuple(samples))


def model_parts(host: ModelHost, levels: int) -> ModelParts:
    """The ends and levels of a task's model; UsageError when the task has no blocks, or not so many levels."""
    blocks = host.task.blocks(host.model)
    if blocks is None:
        raise UsageError(
            f"task {host.task.name} has no blocks, so it cannot be trained in paths; use --task gpt, or give your "
            "task a method blocks() (docs/paths.md)"
        )
    try:
        return cut_model(host.layout, layer_parameters(host.model, blocks), levels)
    except ValueError as error:
        raise UsageError(f"task {host.task.name}: blocks(): {error}") from None


async def prepare(entry: dict[str, Any], options: PathsOptions, context: JobContext) -> PathsJob:
    """A paths job whose data are routed; it takes its blocks from disk or from others when it runs."""
    plan, services, seams = read_plan(entry), context.services, context.services.seams
    _check_wishes(plan, options)
    await services.limiter.free()
    host = await seams.compute(lambda: follow_plan(plan.train, options.train, seams.shared))
    await seams.compute(lambda: check_model(plan.train, host, seams.shared))
    if not await seams.compute(lambda: has_genesis(plan.train, host)):
        raise LocalProblem(
            "this machine makes other first weights than the run's from its seed, so it cannot begin a block that "
            "nobody holds; install the founder's version of torch"
        )
    if seams.threaded:
        await seams.compute(lambda: choose_threads(host, services.limiter.cores))
    founded = context.founder == services.identity.peer_id
    rows = await seams.compute(lambda: own_rows(host, options.train, plan.train, founded))
    parts = model_parts(host, plan.levels)

    def routed() -> PathsSetup:
        train_documents, test_documents = document_numbers(host)
        train = route_samples(host, plan.router, host.data, train_documents)
        test = route_samples(host, plan.router, host.test, test_documents)
        genesis: Floats = host.genesis
        return PathsSetup(plan, host, parts, genesis, train, test)

    key = ("paths", id(host), entry_key(plan))
    setup = await seams.compute(lambda: seams.shared(key, routed))
    return PathsJob(context, setup, options, path_rows(setup.train.paths, rows, plan.grid.paths))


def entry_key(plan: PathsPlan) -> bytes:
    """What tells routers apart that are used with one model host."""
    return plan.router.whole.weights + plan.router.beginning.weights


def path_rows(paths: Paths, rows: Rows | None, count: int) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """This node's rows of each path."""
    if rows is None:
        own = np.ones(len(paths), bool)
    else:
        numbers = rows.at(np.arange(len(rows))) if isinstance(rows, RowSet) else rows
        own = np.zeros(len(paths), bool)
        own[numbers] = True
    return [np.flatnonzero(own & (paths == path)) for path in range(count)]


def _check_wishes(plan: PathsPlan, options: PathsOptions) -> None:
    """UsageError when the user asked for other paths than the run has."""
    if options.paths and options.grid != plan.grid:
        raise UsageError(
            f"--paths {options.paths} contradicts the run, which has {plan.levels}x{plan.options}; leave it out"
        )


def check(entry: dict[str, Any] | None, options: PathsOptions, storage: Storage, folder: str) -> None:
    """What this machine can tell of the options before it is in touch with others."""
    choose_device(options.train.device)
    data = options.train.data
    if data is not None and not data.exists():
        raise UsageError(f"--data {str(data)[:200]!r} does not exist; check the path")
    if entry is not None:
        plan = read_plan(entry)
        _check_wishes(plan, options)
        check_plan(plan.train, options.train)
        return
    if options.paths:
        check_policy(options.train.policy, options.train.settings)
        open_task(options.train)


def preview(options: PathsOptions) -> tuple[JobTable, ...]:
    """Heavy. What each path would get of the data; nothing is founded or trained."""
    host = open_model_host(options.train, 0)
    model_parts(host, options.grid.levels)
    router, _ = found_router(host, options, 0)
    routed = route_samples(host, router, host.data, document_numbers(host)[0])
    return (JobTable("router", ROUTER_COLUMNS, tuple(router_rows(host, options.grid, routed))),)


KIND = JobKind(read_options, found, prepare, check, preview)
