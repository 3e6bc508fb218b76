"""Pictures on disk: one JSON object a line, as simulations and looks record them; other lines are passed by."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from ..errors import LocalProblem, UsageError
from .graph import PeerGraph

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(PeerGraph)


def view_line(graph: PeerGraph) -> bytes:
    """A picture as a line of a recording."""
    return _encoder.encode(graph) + b"\n"


def read_views(path: str | Path) -> list[PeerGraph]:
    """The pictures in a recording, oldest first. LocalProblem or UsageError when there are none to be had."""
    try:
        with Path(path).open("rb") as file:
            found = [_decoder.decode(line) for line in file if line.startswith(b'{"is":"view"')]
    except OSError as error:
        raise LocalProblem(f"cannot read the recording {path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not a recording of p2pnode: {error}") from None
    if not found:
        raise UsageError(f"{path} has no pictures of a swarm in it; record one with: p2pnode sim … --record FILE")
    return sorted(found, key=lambda graph: graph.time)


def write_views(path: str | Path, graphs: Iterable[PeerGraph]) -> None:
    """A recording that `read_views` reads. LocalProblem when it cannot be written."""
    try:
        with Path(path).open("wb") as file:
            file.writelines(view_line(graph) for graph in graphs)
    except OSError as error:
        raise LocalProblem(f"cannot write the recording {path}: {error.strerror}") from None
