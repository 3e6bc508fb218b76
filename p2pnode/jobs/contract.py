"""What a job is: one kind of work that members of a run do together. A new kind of work implements this and registers.

The node starts, routes to, saves, shows and stops jobs, and knows nothing of what they do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..discovery.membership import Membership
from ..discovery.services import Services
from ..runtime.calls import JobCalls
from ..runtime.routes import Routes
from ..wire.control import ControlAnswer, ControlRequest
from ..wire.ids import PeerId
from ..wire.messages import JobAnnouncement
from ..wire.status import ExchangeRow, JobStatus, PeerState, ShardRow
from ..wire.types import Seconds
from .scheduler import JobCompute


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

    @property
    def folder(self) -> str:
        """Where the job keeps its files, within the node's storage."""
        return job_folder(self.calls.access.run, self.name)


def job_folder(run: str, job: str) -> str:
    return f"runs/{run}/{job}"


class JobPace(NamedTuple):
    """How much a job has done, by which the node sees whether it is stuck."""

    steps: int
    samples: int  # that it has to work on; 0: it waits for some, on purpose
    steps_per_second: float


class Job(Protocol):
    """One job of a run at this node. Made by its kind's `prepare`, which may take long."""

    routes: Routes  # what peers may ask

    async def run(self) -> str:
        """Work until cancelled, or until the user's goal is reached: then returns the reason."""
        ...

    async def save(self, limit: Seconds | None = None) -> None:
        """Put progress on disk, within `limit` seconds. Problems are events, never errors."""
        ...

    async def hand_over(self, limit: Seconds) -> None:
        """Before leaving, give to others what is only here."""
        ...

    @property
    def unreplicated(self) -> int:
        """How many things would leave the swarm with this node, as far as is known."""
        ...

    def announcement(self) -> JobAnnouncement:
        """What the node announces of this job."""
        ...

    def pace(self) -> JobPace: ...

    def status(self) -> JobStatus: ...

    def describe(self, peers: Iterable[PeerState]) -> tuple[PeerState, ...]:
        """The same peers with what this job knows of them."""
        ...

    def exchanges(self) -> Sequence[ExchangeRow]:
        """Whom this node exchanged with, the latest last."""
        ...

    def shard_rows(self) -> tuple[ShardRow, ...]: ...

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        """Do what the user commands; LocalProblem or UsageError when that cannot be done."""
        ...


@dataclass(frozen=True)
class JobKind:
    """A kind of job. Only the kind knows the types of its plans and options."""

    found: Callable[[Any, Services], Awaitable[dict[str, Any]]]  # options of a new job → the plan for the manifest
    prepare: Callable[[dict[str, Any], Any, JobContext], Awaitable[Job]]  # plan, options of this node, context
