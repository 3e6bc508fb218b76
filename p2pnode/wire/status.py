"""What a node shows of itself and of its peers: one set of frozen types for messages, views, recordings and pages.

`NodeStatus` is what a node knows, with a `JobStatus` for each of its jobs. A peer is a `PeerState` everywhere, and its
part in a job a `JobState`. What any kind of work reports are `Figure`s and `JobTable`s, which views show without
knowing the kind; training has typed records besides, `TrainStatus` and `TrainState`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from .types import JobName, PeerText

MAX_JOBS = 8  # of a run
MAX_FIGURES = 16  # of a job
MAIN_JOB = "main"  # name of a run's first job

NaturalNumber = Annotated[int, msgspec.Meta(ge=0)]
Condition = Literal["starting", "connected", "alone", "searching", "network down", "leaving"]
JobCondition = Literal["waiting", "running", "paused", "ended"]


FigureName = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,39}\Z")]
FigureValue = int | float | Annotated[str, msgspec.Meta(max_length=100)] | None
Label = Annotated[str, msgspec.Meta(max_length=60)]


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that a kind of work reports about itself. Views show it by its label; numbers are also metrics.

    Views write the units `share` (0 to 1), `bytes`, `s` and `peer` (a peer id) in their usual way, and others as given.
    """

    name: FigureName  # for machines: JSON, and the metric p2pnode_job_NAME (…_total)
    value: FigureValue
    label: Label = ""  # for people; "": the name
    unit: Annotated[str, msgspec.Meta(max_length=20)] = ""
    help: Annotated[str, msgspec.Meta(max_length=200)] = ""  # what it means, in a sentence
    total: bool = False  # a count since the job began, which only grows


class JobTable(msgspec.Struct, frozen=True):
    """Rows that a kind of work reports to its user. A column is (label, unit), with the units of Figure."""

    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[FigureValue, ...], ...] = ()
    shaded: bool = False  # views may colour its cells by the number that each begins with, the smallest strongest


Figures = Annotated[tuple[Figure, ...], msgspec.Meta(max_length=MAX_FIGURES)]


class TrainState(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a node gets on in a job that trains one model, as the node reports it. None: it reports nothing."""

    round: NaturalNumber | None = None
    loss: float | None = None  # mean training loss of its latest round
    accuracy: float | None = None  # of its read-out on the task's test data
    update_norm: float | None = None  # relative change of the shared weights in a round, smoothed
    head: NaturalNumber | None = None  # sequence number of its latest entry
    shards: NaturalNumber | None = None  # shards that may travel and are stored there


NO_TRAINING = TrainState()


class JobState(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a node gets on in one job, as the node reports it to members that ask. None: it reports nothing."""

    circle: Annotated[str, msgspec.Meta(max_length=40)] = ""  # whose delta set it shares; "" is the run's first circle
    steps_per_second: float | None = None
    figures: Figures = ()  # of its kind
    train: TrainState | None = None  # of jobs that train one model

    @property
    def training(self) -> TrainState:
        """Its `train`, empty where there is none."""
        return self.train or NO_TRAINING


JobStates = Annotated[dict[JobName, JobState], msgspec.Meta(max_length=MAX_JOBS)]


class Relation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a peer is to the node that looks, in one job and by that node's own measure."""

    community: str = ""  # id of its member with the smallest id
    similarity: float | None = None  # of the two models, 0 to 1
    reason: str = ""  # why the peer was last chosen as a partner


class PeerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """A peer as one node sees it. Everything in `jobs` is the peer's own claim: shown, never trusted."""

    id: str
    name: str
    role: str
    present: bool  # it was met, did not leave, and answers
    me: bool = False  # the node that looks
    reached: str = ""  # "directly" or "through a relay"
    heard_seconds_ago: float | None = None  # since a call to it last succeeded; None: never
    latency_ms: float | None = None
    bytes_per_second: float | None = None  # measured in large calls to it
    faults: int = 0
    community: str = ""  # id of the community's first member; this and the next two by the looking node's own measure
    similarity: float | None = None  # of its model to the looking node's model, 0 to 1
    reason: str = ""  # why it was last chosen as a partner
    jobs: JobStates = {}
    relations: dict[str, Relation] = {}  # by job, where there are several; the three fields above are of the first

    def in_job(self, name: str) -> PeerState:
        """The same peer with what is known of it in one job only."""
        relation = self.relations.get(name)
        known = {} if relation is None else msgspec.structs.asdict(relation)
        jobs = {name: self.jobs[name]} if name in self.jobs else {}
        return msgspec.structs.replace(self, jobs=jobs, relations={}, **known)

    def job(self, name: str = "") -> JobState:
        """Its state in the named job, else in its first job that trains, else in its first; empty where it has none."""
        first = next((name for name, state in self.jobs.items() if state.train is not None), next(iter(self.jobs), ""))
        return self.jobs.get(name or first, JobState())

    def training(self, name: str = "") -> TrainState:
        """How it gets on in training, in the job that `job` finds; empty where it reports nothing."""
        return self.job(name).training


class NodeEvent(msgspec.Struct, frozen=True):
    """Something worth a line. `kind` is for machines, `text` for people."""

    time: float
    kind: str
    text: str
    warning: bool = False


class Traffic(msgspec.Struct, frozen=True):
    """Bytes of our own calls and streams since the start."""

    sent_bytes: int = 0
    received_bytes: int = 0
    calls_made: int = 0
    calls_served: int = 0
    refused: int = 0


class ExchangeRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """All exchanges of two peers. A node's own rows are those it began, with itself as `one`."""

    one: PeerText
    other: PeerText
    last: float  # time of the latest
    count: NaturalNumber
    sent_bytes: NaturalNumber  # by `one`
    received_bytes: NaturalNumber
    loss_change: float | None = None  # of the training loss over the merge after the latest
    similarity: float | None = None  # of the two models, where the looking node can compare them
    job: Annotated[str, msgspec.Meta(max_length=40)] = ""  # in which they exchanged, where a run has several


class MergeRow(msgspec.Struct, frozen=True):
    """One round and the merge after it. `loss` is that of the round's local steps, which began at the merge before."""

    round: int
    time: float
    partners: tuple[str, ...]  # peers this node exchanged with since the merge before
    sent_bytes: int
    received_bytes: int
    entries: int  # entries of others that came in
    loss: float
    update_norm: float
    steps: int = 0  # local steps
    values: int = 0  # weights in the node's own message


class TrainStatus(msgspec.Struct, frozen=True):
    """What the user of a node sees of a job of kind `train`, besides the state that peers may ask for."""

    task: str = ""
    aim: str = ""  # shared: one model for all; own: one model for each community
    parameters: int = 0
    samples: int = 0
    test_loss: float | None = None  # of the read-out, as TrainState.accuracy
    test_samples: int = 0  # that both are of
    test_available: int = 0  # test samples that the task has
    shards_in_all: int = 0  # of the data set where every node has it whole; 0: nobody knows how many there are
    exchanges: int = 0
    entries: int = 0
    bridges: int = 0
    slowed: str = ""  # why it rests between rounds; "" at full speed
    merged: str = ""  # what the latest merge brought, in words
    problems: int = 0
    hash_checks: int = 0  # comparisons of weights with partners that have the same entries
    hash_mismatches: int = 0  # comparisons that differed; there should be none
    vetoed: int = 0  # authors with vetoes against them
    excluded: int = 0  # authors whose entries no longer count because of vetoes
    let_in: int = 0  # times that entries of others were let in during a round
    copied: int = 0  # shards passed on and kept here too
    moved: int = 0  # shards passed on because there was no room
    data_sent_bytes: int = 0  # of shards passed on
    data_received_bytes: int = 0  # of shards that came to stay
    swaps: int = 0  # model swaps that brought something home
    swaps_hosted: int = 0
    swap_bytes: int = 0


class JobStatus(msgspec.Struct, frozen=True):
    """How a job goes at this node: the state that peers may ask for, and what only its user sees.

    A job reports the second half of the fields; the node adds the first half.
    """

    kind: str = ""
    condition: JobCondition = "running"
    reason: str = ""  # why it waits, is paused or ended
    compute_share: float | None = None  # of the node's compute time that this job got, 0 to 1
    state: JobState = JobState()
    steps: int = 0  # pieces of work done
    community: str = ""  # id of its first member, as this node sees it
    tables: tuple[JobTable, ...] = ()
    train: TrainStatus | None = None  # of kind `train`

    @property
    def training(self) -> TrainStatus:
        """Its `train`, empty where there is none."""
        return self.train or TrainStatus()


class VisitRow(msgspec.Struct, frozen=True):
    """A visit: a model was trained on a shard."""

    peer: str
    model: str
    round: int
    before: float  # mean confidence when it came
    after: float
    time: float  # swarm time


class ShardRow(msgspec.Struct, frozen=True):
    """One shard as this node knows it."""

    id: str
    samples: int
    size_bytes: int
    holder: str  # the peer that is responsible for it
    keepers: tuple[str, ...] = ()
    here: bool = True  # this node has its samples
    received: bool = False  # it came from another peer
    states: dict[str, int] = {}  # samples by state: active, reserve, retired, quarantined
    confidence: float | None = None  # of this node's model, mean over the shard
    reason: str = ""  # why it is in its state, or why it was last sent
    visits: int = 0
    journey: tuple[VisitRow, ...] = ()  # only where one shard is asked for; old visits are summarised
    job: str = ""  # whose data it is


@dataclass(frozen=True)
class LimitOptions:
    """How much of the machine the node may use: set by the user, kept by the limiter, shown by the views.

    None is no limit. The limits can be changed while the node runs.
    """

    max_upload: float | None = None  # bytes a second
    max_download: float | None = None
    max_cpu: float | None = None  # share of the machine, 0 to 1
    pause_on_battery: bool = False
    idle_only: bool = False
    schedule: str = ""  # times of day at which the node may work, as config.schedule reads them; "" is always


NO_LIMITS = LimitOptions()


class Machine(msgspec.Struct, frozen=True):
    """The load of the machine, and this node's part of it."""

    cpu: float  # share of all cores in use, 0 to 1
    own_cpu: float  # by this process
    memory_bytes: int  # of this process
    memory_free_bytes: int
    battery: float | None = None  # charge, 0 to 1; None without one
    on_battery: bool = False


class NodeStatus(msgspec.Struct, frozen=True):
    """Everything the views show of a node. Its condition is "connected" only after a remote peer answered lately."""

    id: str
    name: str
    run: str
    role: str
    condition: Condition
    reason: str  # for the condition
    private: bool
    uptime_seconds: float
    clock_offset_seconds: float
    addresses: tuple[str, ...]
    invite: str
    daemon_starts: int
    traffic: Traffic
    peers: tuple[PeerState, ...]  # without this node
    events: tuple[NodeEvent, ...]
    jobs: dict[str, JobStatus] = {}  # in the order of the run's manifest
    exchanges: tuple[ExchangeRow, ...] = ()
    run_name: str = ""  # as its founder called it
    page: str = ""  # link to the node's page; it contains the token that steering needs
    page_in_network: str = ""  # link for others in the network, to read only; "" where they cannot open the page
    shards: tuple[ShardRow, ...] = ()
    compute_idle: float | None = None  # share of time in which the compute thread had nothing to do lately
    paused: str = ""  # the reason why the node rests, or "" while it works
    limits: LimitOptions = NO_LIMITS
    machine: Machine | None = None
    unwell: tuple[str, ...] = ()  # what is wrong, besides the condition

    def own_state(self) -> PeerState:
        """This node as one of the peers."""
        return own_state(self.id, self.name, self.role, self.jobs)


def own_state(id: str, name: str, role: str, jobs: Mapping[str, JobStatus]) -> PeerState:
    """A node as it knows itself."""
    states = {job: status.state for job, status in jobs.items()}
    community = next((status.community for status in jobs.values() if status.community), "")
    several = {job: Relation(status.community) for job, status in jobs.items()} if len(jobs) > 1 else {}
    return PeerState(id, name, role, present=True, community=community, jobs=states, relations=several)


def fact(value: object, path: str) -> object:
    """What lies at a dotted path of attributes; None where a part of it is missing or unknown."""
    for name in path.split("."):
        value = getattr(value, name, None)
    return value
