"""The plan of a paths job, which all members agree on, and the options of one node. Light: nothing is trained here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from ...config.options import Options, TrainOptions
from ...config.settings import read_jobs
from ...wire.errors import UsageError, suggestion
from ..contract import JobSettings
from ..train.plan import TrainPlan, write_plan
from .grid import MAX_LEVELS, MAX_OPTIONS, MAX_PATHS, PathGrid, Sharing, read_grid
from .router import PathRouter

KIND_NAME = "paths"
PREFIX = 32  # tokens that a text's beginning has
SHARE = "ends"
ROUTES = ("documents", "labels")

Samples = Annotated[int, msgspec.Meta(ge=0)]


class PathsPlan(msgspec.Struct, frozen=True):
    """What all members of a paths job agree on. The router travels in it, signed with the manifest."""

    train: TrainPlan  # of the model that one path is
    levels: Annotated[int, msgspec.Meta(ge=1, le=MAX_LEVELS)]
    options: Annotated[int, msgspec.Meta(ge=2, le=MAX_OPTIONS)]
    sharing: Annotated[tuple[Sharing, ...], msgspec.Meta(min_length=1, max_length=MAX_LEVELS)]
    router: PathRouter
    samples: Annotated[tuple[Samples, ...], msgspec.Meta(min_length=2, max_length=MAX_PATHS)]  # founder's, by path

    def __post_init__(self) -> None:
        paths = self.options**self.levels
        if paths > MAX_PATHS or len(self.sharing) != self.levels:
            raise ValueError("there are too many paths, or not one kind of sharing for each level")
        if len(self.samples) != paths or len(self.router.whole.scales) != paths:
            raise ValueError("the router is for another number of paths")

    @property
    def grid(self) -> PathGrid:
        return PathGrid(self.levels, self.options, self.sharing)


@dataclass(frozen=True)
class PathsOptions:
    """What this node's user wrote: how a path is trained here, and what a founder sets."""

    train: TrainOptions
    paths: str = ""  # LEVELSxOPTIONS; "": not given
    share: str = SHARE
    prefix: int = PREFIX
    route: Literal["documents", "labels"] = "documents"

    @property
    def grid(self) -> PathGrid:
        """The grid of a job founded with these options; UsageError when it is none."""
        if not self.paths:
            raise UsageError("how many paths? add paths=2x2, two levels with two options each")
        return read_grid(self.paths, self.share)


def read_options(settings: JobSettings) -> PathsOptions:
    """The options of a paths job; UsageError in one line when something in them is wrong."""
    given = dict(settings.given)
    paths = str(given.pop("paths", settings.node.paths or ""))
    share, route = str(given.pop("share", SHARE)), str(given.pop("route", ROUTES[0]))
    prefix = given.pop("prefix", PREFIX)
    try:
        pieces = int(prefix)
    except (TypeError, ValueError):
        pieces = -1
    if not 1 <= pieces <= 4096:
        raise UsageError(f"the job {settings.name!r}: prefix={str(prefix)[:40]} must be a number from 1 to 4096")
    if route not in ROUTES:
        raise UsageError(f"the job {settings.name!r}: route={route[:40]} is unknown; {suggestion(route, ROUTES)}")
    if paths:
        read_grid(paths, share)
    jobs = read_jobs([{"name": settings.name, **given}]) if given else ()
    node = Options(train=settings.node.train, jobs=jobs)
    train = node.train_options(settings.name, settings.alone)
    return PathsOptions(train, paths, share, pieces, "labels" if route == "labels" else "documents")


def read_plan(plan: dict[str, Any]) -> PathsPlan:
    """The plan in a manifest; UsageError when it is none that this version can follow."""
    try:
        return msgspec.convert(plan, PathsPlan)
    except msgspec.ValidationError as error:
        raise UsageError(f"the run's plan for paths cannot be followed: {error}") from None


def write_paths_plan(plan: PathsPlan) -> dict[str, Any]:
    """The plan as a manifest has it."""
    written: dict[str, Any] = msgspec.to_builtins(plan)
    return {**written, "train": write_plan(plan.train)}
