"""What a node announces of its queues to everybody, in at most 32 bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from .allocation import NodeLoad

_FORMAT = struct.Struct("<BeHH")  # idle share of 255, speed, owned queues, queues it wants to own


def announced(names: Sequence[str], owned: Sequence[str], wanted: Sequence[str], speed: float, idle: float) -> bytes:
    """Speed, idle share, and which of the job's queues this node owns and wants to own."""
    share = round(255 * min(1.0, max(0.0, idle)))
    return _FORMAT.pack(share, min(60_000.0, speed), _bits(names, owned), _bits(names, wanted))


def read_announced(state: bytes, names: Sequence[str]) -> tuple[NodeLoad, list[str]]:
    """A member's load and the queues it wants to own. What cannot be read says nothing."""
    if len(state) != _FORMAT.size:
        return NodeLoad(0.0, 0.0), []
    share, speed, _, wanted = _FORMAT.unpack(state)
    known = speed if speed == speed and 0.0 <= speed < 1e6 else 0.0
    return NodeLoad(known, share / 255), [name for place, name in enumerate(names) if wanted >> place & 1]


def _bits(names: Sequence[str], chosen: Sequence[str]) -> int:
    return sum(1 << place for place, name in enumerate(names) if name in chosen)
