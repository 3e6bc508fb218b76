"""The plan of an actors job, which all members agree on, and the options of one node. Light."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec

from ...config.until import Until
from ...wire.errors import UsageError, suggestion
from ..contract import JobSettings

Mode = Literal["queue", "replicas", "own"]


class ActorsSettings(msgspec.Struct, frozen=True):
    """What a founder may set for all members."""

    features: Annotated[int, msgspec.Meta(ge=1, le=256)] = 16  # numbers that the critic sees: observation and context
    width: Annotated[int, msgspec.Meta(ge=4, le=1024)] = 64  # of the critic's two hidden layers
    mode: Mode = "queue"
    share: bool = False  # rollouts go to members whose spaces agree, who learn from them too
    rollout: Annotated[int, msgspec.Meta(ge=64, le=4096)] = 512  # steps of all environments together
    gamma: Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)] = 0.99  # discount of later rewards
    lam: Annotated[float, msgspec.Meta(ge=0.0, le=1.0)] = 0.95  # of generalised advantages
    critic_steps: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 32  # gradient steps for each rollout
    wait: Annotated[float, msgspec.Meta(ge=0.0, le=10.0)] = 0.25  # for the owner's values, in times of a rollout
    lease: Annotated[float, msgspec.Meta(ge=3.0, le=600.0)] = 30.0  # seconds of silence until the critic is taken over
    publish: Annotated[float, msgspec.Meta(ge=0.1, le=600.0)] = 1.0  # seconds between two entries of the critic


class ActorsPlan(msgspec.Struct, frozen=True):
    """What all members of an actors job agree on."""

    seed: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]  # of the critic's first weights
    settings: ActorsSettings = ActorsSettings()


class ActorsOptions(msgspec.Struct, frozen=True):
    """What this node's user wrote."""

    settings: ActorsSettings
    given: tuple[str, ...] = ()  # the settings that the user wrote
    task: Any = None  # where the PolicyTask is found, or one itself; None: this node keeps the critic and acts nowhere
    task_options: dict[str, Any] = {}
    prefer_owner: bool = False
    until: Until | None = None
    max_disk: int | None = None


_OWN = ("task", "tasks", "prefer-owner")


def read_plan(plan: dict[str, Any]) -> ActorsPlan:
    """The plan in a manifest; UsageError when it is none that this version can follow."""
    try:
        return msgspec.convert(plan, ActorsPlan)
    except msgspec.ValidationError as error:
        raise UsageError(f"the run's plan for actors cannot be followed: {error}") from None


def read_options(settings: JobSettings) -> ActorsOptions:
    """The options of an actors job; UsageError in one line when something in them is wrong."""
    given = {key.replace("-", "_"): value for key, value in settings.given.items()}
    train = settings.node.train
    task, tasks = given.pop("task", None), given.pop("tasks", ())
    if tasks:  # a simulation deals them out; None is a node without one
        task = tasks[(0 if train.part is None else train.part.index) % len(tasks)]
    elif task is None and settings.alone:
        task = train.task
    prefer = given.pop("prefer_owner", False)
    fields = ActorsSettings.__struct_fields__
    for key in given:
        if key not in fields:
            known = [*(name.replace("_", "-") for name in fields), *_OWN]
            raise UsageError(f"the job {settings.name!r} has no option {key[:60]!r}; {suggestion(key, known)}")
    try:
        read = msgspec.convert(given, ActorsSettings, strict=False)
        wants = msgspec.convert(prefer, bool, strict=False)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        key = where.rstrip("`").replace("_", "-")
        what += f"; one of {', '.join(get_args(Mode))} is possible" if key == "mode" else ""
        raise UsageError(f"the job {settings.name!r}: {f'{key}: ' if key else ''}{what}") from None
    options = dict(train.task_options) if settings.alone else {}
    return ActorsOptions(read, tuple(given), task, options, wants, train.until, train.max_disk)


def check_settings(plan: ActorsPlan, options: ActorsOptions) -> None:
    """UsageError when this node's user wants a setting that the run does not have."""
    for key in options.given:
        wanted, planned = getattr(options.settings, key), getattr(plan.settings, key)
        if wanted != planned:
            name = key.replace("_", "-")
            raise UsageError(f"{name}={wanted} contradicts the run, which has {planned}; leave it out, or --found")
