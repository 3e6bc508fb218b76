"""What commands ask of a running node over its control socket, and what it answers."""

from __future__ import annotations

from typing import Literal

import msgspec

from .status import MergeRow, NodeStatus, ShardRow


class ControlRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked of the node."""

    do: Literal[
        "status", "leave", "export", "revert", "log", "blame", "shards", "fingerprints", "pause", "resume", "limits",
    ]  # fmt: skip
    file: str = ""  # to export to, an absolute path
    shared: bool = False  # export the shared weights, not their average over rounds
    peer: str = ""  # to leave out: its id, the end of it, or its name
    shard: str = ""  # whose journey is asked for; "": all shards, without journeys
    job: str = ""  # whose log, lineage or shards are asked for; "": the run's first job
    limits: dict[str, str | bool | float] = {}  # to change, by the names of their flags; `off` is no limit


class ControlAnswer(msgspec.Struct, frozen=True):
    """`problem` says why not; else `status` is there when it was asked for, and `said` tells what was done."""

    problem: str = ""
    status: NodeStatus | None = None
    said: str = ""
    merges: tuple[MergeRow, ...] = ()  # the log, newest last
    blame: dict[str, dict[str, float]] = {}  # by author and layer, the share of what was added there
    shards: tuple[ShardRow, ...] = ()
    fingerprints: dict[str, bytes] = {}  # by peer, as announced
    manifest: bytes = b""  # of the run, signed; with the fingerprints
    refused: bool = False  # the request was understood, and could not be done
