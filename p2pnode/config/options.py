"""Everything a user can decide about a node, as frozen records that travel unchanged from flag to use.

Flags, environment, TOML and the simulator all make an `Options`. How people write each value (flag, reader, help) is
in `settings.py`. None always means "not given": the node then uses the run's value, or the default of a new run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from ..wire.addresses import Address, Reachability
from ..wire.invite import Invite
from ..wire.run import Aim, RunAccess
from ..wire.status import MAIN_JOB, NO_LIMITS, LimitOptions
from ..wire.types import Seconds
from .split import Split, SplitPart
from .until import Until

Role = Literal["node", "bootstrap", "observer"]
LogFormat = Literal["auto", "rich", "plain", "json"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Quarantine = Literal["auto", "on", "off"]  # auto: where samples of several nodes meet, or with --reserve
TaskOption = bool | int | float | str

ACTORS = "actors"  # the kind of a job in which every node learns a policy of its own
QUEUES = "queues"  # the kind of a job that trains several models at once
PATHS = "paths"  # the kind of a job that trains paths through one model
PIPELINE = "pipeline"  # the kind of a job that divides one model among its members
TRAIN = "train"  # the kind of a job for which none is given
DEFAULT_TASK = "digits"
DEFAULT_POLICY = "deltaset"
DEFAULT_AIM: Aim = "shared"
DEFAULT_ROUND_SECONDS: Seconds = 2.0


@dataclass(frozen=True)
class RunOptions:
    """Which run the node takes part in, and how it gets there. What an invite says is in the other fields too."""

    invite: Invite | None = None
    bootstrap: tuple[Address, ...] = ()
    access: RunAccess | None = None  # None: the saved run, the run of a bootstrap, or a new one
    found: bool = False
    private: bool = False
    moderators: tuple[str, ...] | None = None  # of a run founded here; None: the founder
    name: str = ""  # of a run founded here; "" makes one from the node's name
    join_timeout: Seconds | None = None  # None: keep trying
    leave_timeout: Seconds = 20.0  # for handing over what only this node has
    meet_only: bool = False  # take part in no job of the run


@dataclass(frozen=True)
class TrainOptions:
    """What one training job of this node does. Values that concern the whole run must agree with the run's plan."""

    task: str | None = None
    task_options: Mapping[str, TaskOption] = field(default_factory=dict)
    data: Path | None = None  # where this node's own data are
    device: Device = "auto"
    policy: str | None = None
    settings: Mapping[str, float] = field(default_factory=dict)  # of the policy and of partner choice
    aim: Aim | None = None
    round_seconds: Seconds | None = None
    max_steps: int = 200  # local steps in one round of a run founded here
    split: Split | None = None  # experiments: how all the data are dealt out,
    part: SplitPart | None = None  # and which part this node gets
    circle: str = ""  # experiments: a declared circle; "" lets the node find its own
    share_data: bool = False  # this node's samples may travel to other nodes
    reserve: bool = False  # train less often on samples that models are sure of
    quarantine: Quarantine = "auto"  # leave out samples that models of other peers fail at
    no_model_swaps: bool = False  # models of others may not come to train on data that stay here
    full_speed: bool = False  # do not rest between rounds when the run has converged
    until: Until | None = None  # None: train until asked to leave
    max_disk: int | None = None  # bytes that training may use
    accept_task: tuple[str, ...] = ()  # sha256 of files of a run's founder that may run here

    @property
    def names_something(self) -> bool:
        """Whether the user named anything that this machine may not have, or that may be misspelt."""
        named = (self.task, self.task_options, self.data, self.policy, self.settings)
        return any(one is not None and one != {} for one in named) or self.device != "auto"

    def with_defaults(self) -> TrainOptions:
        """The options of a run founded with these: what was not given has its default."""
        return replace(
            self,
            task=self.task or DEFAULT_TASK,
            policy=self.policy or DEFAULT_POLICY,
            aim=self.aim or DEFAULT_AIM,
            round_seconds=self.round_seconds or DEFAULT_ROUND_SECONDS,
        )


@dataclass(frozen=True)
class JobOptions:
    """One of several jobs: its name, its kind, and what is given for this job.

    For kind `train` these are fields of TrainOptions; other kinds read keys and values as they were written.
    """

    name: str
    kind: str = TRAIN
    given: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Returns the text that `--job` takes: NAME[=TASK][,KEY=VALUE...]."""
        given = dict(self.given)
        task, options = given.pop("task", None), given.pop("task_options", {})
        kind = {} if self.kind == TRAIN else {"kind": self.kind}
        pairs = [f"{key}={value}" for key, value in {**kind, **given, **options}.items()]
        return ",".join([self.name if task is None else f"{self.name}={task}", *pairs])


class DescribedJob(Protocol):
    """A job described in Python, such as p2pnode.Queues."""

    def job(self) -> JobOptions:
        """The job as a founder gives it; UsageError where something in it is wrong."""
        ...


@dataclass(frozen=True)
class NetworkOptions:
    """Where this node can be reached."""

    listen: tuple[str, ...] = ()
    announce: tuple[str, ...] = ()
    no_listen: bool = False
    reachability: Reachability = "auto"
    no_lan: bool = False  # do not show the run in the local network


@dataclass(frozen=True)
class OutputOptions:
    """What the node shows."""

    log_format: LogFormat = "auto"
    quiet: bool = False
    dashboard: tuple[str, int] | None = None  # host and port
    tensorboard: Path | None = None


@dataclass(frozen=True)
class SimOptions:
    """How a swarm is simulated, besides what its nodes train. Shares are from 0 to 1."""

    peers: int = 16
    seed: int = 0  # equal options with equal seeds give equal simulations
    rounds: int = 50  # the simulation ends when every node has done this many
    seconds: Seconds | None = None  # of virtual time, at most; without a task, exactly
    latency: Seconds = 0.05  # of each message
    rate: float | None = None  # bytes a second that one node can send; None: no limit
    loss: float = 0.0  # share of messages that are lost,
    duplicate: float = 0.0  # that arrive twice,
    reorder: float = 0.0  # that are overtaken by later ones
    churn: float = 0.0  # share of nodes that crash and come back
    speeds: tuple[float, float] = (1.0, 1.0)  # between which the speed of each node is drawn
    circle: int = 0  # declare circles of this many nodes; 0: nodes find their circles themselves
    alone: int = 4  # this many nodes are trained alone as well, for comparison


@dataclass(frozen=True)
class Options:
    """All options of one node. `name` None: the node is named after its identity."""

    name: str | None = None
    data_dir: Path = Path()
    role: Role = "node"
    run: RunOptions = RunOptions()
    train: TrainOptions = TrainOptions()
    network: NetworkOptions = NetworkOptions()
    limits: LimitOptions = NO_LIMITS
    output: OutputOptions = OutputOptions()
    jobs: tuple[JobOptions, ...] = ()  # of a run with several; empty: one train job, as `train` says
    models: tuple[JobOptions, ...] = ()  # of a job of kind `queues`, which trains several at once
    paths: str = ""  # LEVELSxOPTIONS: train paths through a model, not one model
    serve_only: bool = False  # in a pipeline: serve blocks of the model, and need no data
    only: tuple[str, ...] = ()  # the jobs of the run to take part in; empty: all

    def founded_jobs(self) -> tuple[JobOptions, ...]:
        """The jobs of a run founded with these options."""
        if self.role != "node" or self.run.meet_only:
            return ()
        if self.paths and not self.jobs:
            return (JobOptions(PATHS, PATHS),)
        return self.jobs or (JobOptions(QUEUES, QUEUES) if self.models else JobOptions(MAIN_JOB),)

    def train_options(self, name: str, alone: bool) -> TrainOptions:
        """The options of one train job of the run, where it is `alone` or one of several.

        `train` holds for all jobs, but for the fields that concern one task.
        """
        given = next((job.given for job in self.jobs if job.name == name), {})
        common = self.train if alone else replace(self.train, task=None, task_options={}, data=None)
        return replace(common, **given)
