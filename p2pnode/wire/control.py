"""What commands ask of a running node over its control socket, and what it answers."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from .status import JobTable, MergeRow, NodeStatus, ShardRow
from .types import MAX_REASON

MAX_LENGTH = 100_000  # tokens of a generated text
ExpertAction = Literal["add", "remove", "use", "ignore", "list"]
EXPERT_ACTIONS: tuple[ExpertAction, ...] = ("add", "remove", "use", "ignore", "list")


class ControlRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked of the node."""

    do: Literal[
        "status", "leave", "export", "generate", "revert", "log", "blame", "shards", "fingerprints", "pause", "resume",
        "limits", "queues", "router", "expert", "ban", "unban",
    ]  # fmt: skip
    file: str = ""  # to export to, an absolute path
    shared: bool = False  # export the shared weights, not their average over rounds
    settle: bool = False  # export the weights at the end of a settling phase, which this asks for
    peer: str = ""  # to leave out or ban: its id, the end of it, or its name
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON)] = ""  # of a ban, for the other members
    shard: str = ""  # whose journey is asked for; "": all shards, without journeys
    job: str = ""  # whose log, lineage or shards are asked for; "": the run's first job
    prompt: str = ""  # to continue
    length: Annotated[int, msgspec.Meta(ge=1, le=MAX_LENGTH)] = 200  # tokens to generate
    temperature: Annotated[float, msgspec.Meta(ge=0, le=100)] = 0.8
    top_k: Annotated[int, msgspec.Meta(ge=0)] = 0
    seed: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0
    generation: str = ""  # one that goes on, instead of a prompt
    words: tuple[str, ...] = ()  # what to change about queues, as the user wrote it
    path: str = ""  # of a job of kind paths, to export or to generate with; "all": every one
    expert: str = ""  # a name, to do something with; "": list them
    action: ExpertAction = "list"  # what to do with the expert
    data: str = ""  # of an expert that is added, an absolute path
    steps: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 200  # local steps that it is trained for
    limits: dict[str, str | bool | float] = {}  # to change, by the names of their flags; `off` is no limit


class ControlAnswer(msgspec.Struct, frozen=True):
    """`problem` says why not; else `status` is there when it was asked for, and `said` tells what was done."""

    problem: str = ""
    status: NodeStatus | None = None
    said: str = ""
    merges: tuple[MergeRow, ...] = ()  # the log, latest last
    blame: dict[str, dict[str, float]] = {}  # by author and layer, the share of what was added there
    shards: tuple[ShardRow, ...] = ()
    fingerprints: dict[str, bytes] = {}  # by peer, as announced
    manifest: bytes = b""  # of the run, signed; with the fingerprints
    tables: tuple[JobTable, ...] = ()
    generation: str = ""  # there is more to ask for, by this name; "": it is over
    pending: str = ""  # how far it is; ask again for the result
    refused: bool = False  # the request was understood, and could not be done
