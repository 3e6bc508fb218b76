"""What a job is: one kind of work that members of a run do together. A new kind of work is a `Job` and a `JobKind`.

The node starts, routes to, saves, shows and stops jobs, and knows nothing of what they do. `examples/job_kind.py` is a
whole kind in one short file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, get_type_hints

import msgspec
from blake3 import blake3

from ..config.options import Options
from ..discovery.membership import Membership
from ..discovery.services import Services
from ..runtime.calls import JobCalls
from ..runtime.routes import Routes
from ..storage.files import Storage
from ..wire.control import ControlAnswer, ControlRequest
from ..wire.errors import UsageError, suggestion
from ..wire.ids import PeerId
from ..wire.messages import JobAnnouncement
from ..wire.status import MAIN_JOB, ExchangeRow, JobStatus, JobTable, PeerState, ShardRow
from ..wire.types import Seconds
from .scheduler import JobCompute

if TYPE_CHECKING:
    from ..tasks.task import Evaluation

T = TypeVar("T")


@dataclass(frozen=True)
class JobContext:
    """What a job is given. Work given to `services.seams.compute` goes through `compute`."""

    name: str
    services: Services
    calls: JobCalls  # to members of the run, about this job
    membership: Membership
    compute: JobCompute  # its share of the compute thread
    founder: PeerId  # of the run
    created: float  # swarm time at which the run was founded
    moderators: tuple[str, ...] = ()  # whose veto excludes an author alone
    alone: bool = True  # whether it is the run's only job, on which the founder works too

    @property
    def folder(self) -> str:
        """Where the job keeps its files, within the node's storage."""
        return job_folder(self.calls.access.run, self.name)

    def members(self) -> list[PeerId]:
        """The other nodes that take part in this job and answer."""
        return [peer.id for peer in self.services.table.doing(self.calls.run, self.name)]


def own_seed(context: JobContext) -> int:
    """The same for this node in this job at every start, so that a restart goes on with the same random numbers."""
    job = "" if context.name == MAIN_JOB else f"/{context.name}"
    words = f"{context.calls.access.run}/{context.calls.me}{job}"
    return int.from_bytes(blake3(words.encode()).digest(4)) >> 1


def job_folder(run: str, job: str) -> str:
    return f"runs/{run}/{job}"


class JobPace(NamedTuple):
    """How much a job has done, by which the node sees whether it is stuck."""

    steps: int
    samples: int  # that it has to work on; 0: it waits for some, on purpose
    steps_per_second: float


class TrainsModel(Protocol):
    """What a job can do that trains one model. Both are heavy."""

    def evaluate(self) -> Evaluation:
        """How good its model is on all of the test data."""
        ...

    def evaluate_alone(self, seed: int) -> Evaluation:
        """How good a model is after as many steps on this node's own samples alone: a baseline for experiments."""
        ...


class Job(ABC):
    """One job of a run at this node. Made by its kind's `prepare`, which may take long.

    A kind must say how it runs and how it goes. Everything else has a default: nothing to answer, save, hand over or
    show. A problem of the job itself is a LocalProblem or UsageError, and ends no other job.
    """

    routes = Routes({})  # what peers may ask
    model: TrainsModel | None = None  # of a kind that trains one

    def __init__(self, context: JobContext) -> None:
        self.context = context
        self.name = context.name

    @abstractmethod
    async def run(self) -> str:
        """Work until cancelled, or until the user's goal is reached: then returns the reason."""

    @abstractmethod
    def status(self) -> JobStatus:
        """How it goes: state, steps, tables. The node fills in kind, condition, reason and compute share."""

    async def save(self, limit: Seconds | None = None) -> None:  # noqa: B027  (not every kind has something to save)
        """Put progress on disk, within `limit` seconds; LocalProblem when that fails."""

    async def hand_over(self, limit: Seconds) -> None:  # noqa: B027  (or to hand over)
        """Gives others what only this node has, before it leaves."""

    @property
    def unreplicated(self) -> int:
        """How many things would leave the swarm with this node, as far as is known."""
        return 0

    def announcement(self) -> JobAnnouncement:
        """What the node announces of this job to everybody: that it takes part, and a few bytes of the kind's own."""
        return JobAnnouncement(self.name)

    def pace(self) -> JobPace | None:
        """Returns how fast the job should make progress, for the health check; None: it is not watched."""
        return None

    def describe(self, peers: Iterable[PeerState]) -> tuple[PeerState, ...]:
        """The same peers with what this job knows of them."""
        return tuple(peers)

    def exchanges(self) -> Sequence[ExchangeRow]:
        """The peers this node exchanged with, the latest last."""
        return ()

    def shard_rows(self) -> tuple[ShardRow, ...]:
        """The data that this job keeps."""
        return ()

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        """Do what the user asks for; LocalProblem or UsageError when that cannot be done."""
        raise UsageError(f"the job {self.name!r} knows no {request.do!r}; --job names another one")


class JobSettings(NamedTuple):
    """What the user wrote for one job of the run."""

    name: str
    given: Mapping[str, Any]  # for this job, by key
    node: Options  # for the whole node
    alone: bool  # it is the node's only job


@dataclass(frozen=True)
class JobKind:
    """A kind of job. Only the kind knows the types of its plans and options."""

    read: Callable[[JobSettings], Any]  # what the user wrote → the kind's options; UsageError in one line
    found: Callable[[Any, Services], Awaitable[dict[str, Any]]]  # options of a new job → the plan for the manifest
    prepare: Callable[[dict[str, Any], Any, JobContext], Awaitable[Job]]  # plan, options of this node, context
    check: Callable[[dict[str, Any] | None, Any, Storage, str], None] = lambda plan, options, storage, folder: None
    """Called before the network starts: the plan, None where it is not known here; the options of this node; the job's
    folder in the storage, which may hold more. UsageError or LocalProblem for what this machine can tell to be wrong.
    """
    preview: Callable[[Any], tuple[JobTable, ...]] | None = None
    """Heavy. What a job founded with these options would begin with, for people; None for a kind that shows nothing."""


def options_reader(record: type[T]) -> Callable[[JobSettings], T]:
    """Reads options into a dataclass or msgspec.Struct, whose fields are the keys. Bounds are those of msgspec.Meta."""
    keys = [key.replace("_", "-") for key in get_type_hints(record)]

    def read(settings: JobSettings) -> T:
        for key in settings.given:
            if key.replace("_", "-") not in keys:
                raise UsageError(f"the job {settings.name!r} has no option {key[:60]!r}; {suggestion(key, keys)}")
        try:
            return msgspec.convert(
                {key.replace("-", "_"): settings.given[key] for key in settings.given}, record, strict=False
            )
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$.")
            key = where.rstrip("`").replace("_", "-")
            raise UsageError(f"the job {settings.name!r}: {f'{key}: ' if key else ''}{what}") from None

    return read
