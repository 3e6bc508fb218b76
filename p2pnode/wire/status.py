"""What a node shows of itself: one frozen value behind the terminal view, the control socket and `peers`."""

from __future__ import annotations

from typing import Literal

import msgspec

Condition = Literal["starting", "connected", "alone", "searching", "network down", "leaving"]


class PeerRow(msgspec.Struct, frozen=True):
    """One line of the table of who is there."""

    id: str
    name: str
    role: str
    addresses: tuple[str, ...]
    present: bool  # it was met, did not leave and answers
    heard_seconds_ago: float | None  # since a call to it last succeeded; None = never yet
    latency_ms: float | None
    faults: int
    bytes_per_second: float | None = None  # of large calls to it; None = none yet
    community: str = ""  # its first member; this and the next two as our own view and choices have it
    similarity: float | None = None  # of its model to ours, 0 to 1
    chosen: str = ""  # why it was last chosen as a partner
    round: int | None = None  # this and the rest, as it says itself, to be shown and never trusted
    loss: float | None = None
    update_norm: float | None = None
    accuracy: float | None = None
    steps_per_second: float | None = None
    circle: str = ""
    head: int | None = None  # seq of its newest entry
    shards: int | None = None  # that travel and are there


class Kinship(msgspec.Struct, frozen=True):
    """One peer beside us: its community, how alike our models are, why it was last a partner."""

    community: str = ""
    similarity: float | None = None
    why: str = ""


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


class ExchangeRow(msgspec.Struct, frozen=True):
    """All exchanges one peer began with another."""

    one: str
    other: str
    last: float  # when the latest was
    count: int
    sent_bytes: int
    received_bytes: int
    loss_change: float | None = None  # of the training loss over the latest merge after one


class MergeRow(msgspec.Struct, frozen=True):
    """One round and the merge after it. `loss` is that of the round's local steps, which began at the merge before."""

    round: int
    time: float
    partners: tuple[str, ...]  # with whom this node exchanged since the merge before
    sent_bytes: int
    received_bytes: int
    entries: int  # of others that came in
    loss: float
    update_norm: float
    steps: int = 0  # local ones
    values: int = 0  # weights that the node's own message carried


class TrainStatus(msgspec.Struct, frozen=True):
    """How the learning goes; `accuracy` and `test_loss` are those of the read-out on the task's test data."""

    task: str
    parameters: int
    rounds: int
    steps: int
    samples: int
    steps_per_second: float
    loss: float | None
    test_loss: float | None
    accuracy: float | None
    update_norm: float  # smoothed
    exchanges: int
    entries: int
    merged: str
    problems: int = 0
    hash_checks: int = 0  # comparisons of weights with partners that have the same entries
    hash_mismatches: int = 0  # of them, those that differed: should be none
    circle: str = ""
    aim: str = ""  # shared: one model for all; own: each community good at its own data
    community: str = ""  # its first member, as this node sees it
    bridges: int = 0
    kept: int = 0  # corrections during a round that kept its steps
    restarted: int = 0  # and that did not
    head: int | None = None  # seq of its newest entry
    shards: int = 0  # that travel and are here
    copied: int = 0  # shards passed on and kept here too
    moved: int = 0  # passed on for want of room
    data_sent_bytes: int = 0  # of shards passed on
    data_received_bytes: int = 0  # of shards that came, to be kept too
    visits: int = 0  # of this model at others that brought something home
    visits_hosted: int = 0
    visit_bytes: int = 0


class VisitRow(msgspec.Struct, frozen=True):
    """A model's stay at a shard."""

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
    received: bool = False  # from another peer
    states: dict[str, int] = {}  # samples by state: active, reserve, retired, quarantined
    confidence: float | None = None  # of this node's model, mean over the shard
    why: str = ""  # it is in its state, or was last sent
    visits: int = 0
    journey: tuple[VisitRow, ...] = ()  # only where one shard is asked for; older visits are summarised away


class Guest(msgspec.Struct, frozen=True):
    """How far the node may use the machine, and whether it rests. None is no limit."""

    paused: str = ""  # why, or "" while it works
    max_upload: float | None = None  # bytes a second
    max_download: float | None = None
    max_cpu: float | None = None  # share of the machine, 0 to 1
    pause_on_battery: bool = False
    idle_only: bool = False
    schedule: str = ""


class Machine(msgspec.Struct, frozen=True):
    """The load of the machine, and this node's part of it."""

    cpu: float  # share of all cores in use, 0 to 1
    own_cpu: float  # by this process
    memory_bytes: int  # of this process
    memory_free_bytes: int
    battery: float | None = None  # charge, 0 to 1; None without one
    on_battery: bool = False


class NodeStatus(msgspec.Struct, frozen=True):
    """Everything the views show. `connected` is only ever said after a remote peer answered a call lately."""

    id: str
    name: str
    run: str
    role: str
    condition: Condition
    why: str
    private: bool
    uptime_seconds: float
    clock_offset_seconds: float
    addresses: tuple[str, ...]
    invite: str
    daemon_starts: int
    traffic: Traffic
    peers: tuple[PeerRow, ...]
    events: tuple[NodeEvent, ...]
    learning: TrainStatus | None = None
    exchanges: tuple[ExchangeRow, ...] = ()
    page: str = ""  # where it can be looked at; with the token that steering needs
    shards: tuple[ShardRow, ...] = ()
    guest: Guest = Guest()
    machine: Machine | None = None
    unwell: tuple[str, ...] = ()  # why, besides its condition

    def fact(self, path: str) -> object:
        """What is at a dotted path; None where a part of it is not known."""
        found: object = self
        for name in path.split("."):
            found = None if found is None else getattr(found, name)
        return found
