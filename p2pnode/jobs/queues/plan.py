"""The plan of a queues job, which all members agree on, and the options of one node. Light: nothing is trained here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from ...config.options import JobOptions, Options, TrainOptions
from ...config.settings import read_jobs
from ...config.until import Until
from ...wire.errors import UsageError, suggestion
from ...wire.types import JobName
from ..contract import JobSettings
from ..train.plan import TrainPlan, write_plan
from .priority import PriorityWeights

MIN_MODELS, MAX_MODELS = 2, 16


class QueuesSettings(msgspec.Struct, frozen=True):
    """What a founder may set for all members."""

    weights: PriorityWeights = PriorityWeights()
    capacity: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 64  # items in a queue
    steps: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 8  # local steps of an item; 1 is a plain gradient step
    turn: Annotated[float, msgspec.Meta(ge=0.0, le=3600.0)] = 10.0  # seconds that a node trains one model at a time
    batch: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8  # items that are applied at once
    density: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.0  # share of the weights in an item; 0: by producers
    rate: Annotated[float, msgspec.Meta(ge=0.0, le=10.0)] = 0.0  # factor on the learning rate; 0: by producers
    gain: Annotated[float, msgspec.Meta(gt=0.0, le=10.0)] = 1.0  # on what the producers of a moment agree on
    lease: Annotated[float, msgspec.Meta(ge=3.0, le=600.0)] = 30.0  # seconds of silence until a queue is taken over
    reallocate: Annotated[float, msgspec.Meta(ge=1.0, le=3600.0)] = 30.0  # seconds between two looks at who owns what
    priority: bool = True  # False: the queues take turns, for comparison
    fixed: bool = False  # True: owners stay, for comparison
    common: bool = False  # True: an owner has one queue for all its models, first come, first served; for comparison


class PlannedModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of the models: its name, what its members must agree on to train it, and when it is good enough."""

    name: JobName
    train: TrainPlan
    target: Annotated[float, msgspec.Meta(gt=0.0, le=1.0)] | None = None  # accuracy


class QueuesPlan(msgspec.Struct, frozen=True):
    """What all members of a queues job agree on."""

    models: Annotated[tuple[PlannedModel, ...], msgspec.Meta(min_length=MIN_MODELS, max_length=MAX_MODELS)]
    settings: QueuesSettings = QueuesSettings()


class QueuesOptions(msgspec.Struct, frozen=True):
    """What this node's user wrote: how each model is trained here, and what a founder sets."""

    models: dict[str, TrainOptions]  # `until` is that of the model: its target
    node: TrainOptions  # how models are trained that it does not name; `until` is that of the job
    settings: QueuesSettings
    prefer: tuple[str, ...] = ()  # queues that this node should own whenever it is present


def read_plan(plan: dict[str, Any]) -> QueuesPlan:
    """The plan in a manifest; UsageError when it is none that this version can follow."""
    try:
        return msgspec.convert(plan, QueuesPlan)
    except msgspec.ValidationError as error:
        raise UsageError(f"the run's plan for queues cannot be followed: {error}") from None


def write_model_plan(model: PlannedModel) -> dict[str, Any]:
    """A model as it stands in the manifest."""
    return {**msgspec.to_builtins(model), "train": write_plan(model.train)}


def plan_of_model(model: PlannedModel) -> bytes:
    """A model as the founder's change carries it."""
    return msgspec.msgpack.encode(write_model_plan(model))


def target_of(name: str, until: Until | None) -> float | None:
    """The accuracy at which a model is good enough; UsageError for any other goal."""
    if until is not None and until.what != "accuracy":
        raise UsageError(f"the model {name!r}: until={until} is no goal of a model; write until=accuracy:0.9")
    return None if until is None else until.amount


def read_model(data: bytes) -> PlannedModel:
    """A model in a change; ValueError when this version cannot follow it."""
    try:
        return msgspec.msgpack.decode(data, type=PlannedModel)
    except msgspec.DecodeError as error:
        raise ValueError(f"malformed model: {error}") from None


def read_options(settings: JobSettings) -> QueuesOptions:
    """The options of a queues job; UsageError in one line when something in them is wrong."""
    given = dict(settings.given)
    models, prefer = _read_models(given.pop("models", {}), settings), given.pop("prefer_owner", ())
    prefer = tuple(prefer.replace(",", " ").split() if isinstance(prefer, str) else prefer)
    weights = {key: given.pop(key) for key in PriorityWeights.__struct_fields__ if key in given}
    known = [*QueuesSettings.__struct_fields__, *PriorityWeights.__struct_fields__, "models", "prefer-owner"]
    for key in given:
        if key not in QueuesSettings.__struct_fields__:
            raise UsageError(f"the job {settings.name!r} has no option {key[:60]!r}; {suggestion(key, known)}")
    if weights:
        given["weights"] = {**dict(given.get("weights") or {}), **weights}
    try:
        node = replace(settings.node.train, task=None, task_options={}, data=None)
        return QueuesOptions(models, node, msgspec.convert(given, QueuesSettings, strict=False), prefer)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        key = where.rstrip("`").rpartition(".")[2]
        raise UsageError(f"the job {settings.name!r}: {f'{key}: ' if key else ''}{what}") from None


def read_added(written: str, node: TrainOptions) -> tuple[str, TrainOptions]:
    """Name and options of a model written as NAME=TASK[,KEY=VALUE...]; UsageError in one line."""
    (job,) = read_jobs([written])
    train = replace(node, **{"until": None, **job.given})
    target_of(job.name, train.until)
    return job.name, train


def _read_models(raw: object, settings: JobSettings) -> dict[str, TrainOptions]:
    """How each model is trained: the node's options and its own, from a mapping or from NAME=TASK[,KEY=VALUE...].

    Where the job's options name none, those of --model count.
    """
    if isinstance(raw, Mapping):
        raw = [
            {"name": name, **({"task": model} if isinstance(model, str) else dict(model))}
            for name, model in raw.items()
        ]
    jobs: tuple[JobOptions, ...] = read_jobs(raw, "models") if raw else settings.node.models
    if jobs and not MIN_MODELS <= len(jobs) <= MAX_MODELS:
        few = "queues are for several models; to train one, use --task" if len(jobs) < MIN_MODELS else ""
        raise UsageError(few or f"{len(jobs)} models are too many; queues hold {MIN_MODELS} to {MAX_MODELS}")
    node = Options(train=replace(settings.node.train, until=None), jobs=jobs)
    models = {job.name: node.train_options(job.name, alone=False) for job in jobs}
    for name, model in models.items():
        target_of(name, model.until)
    return models
