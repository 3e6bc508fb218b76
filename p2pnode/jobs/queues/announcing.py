"""What a node announces of its queues to everybody, in at most 32 bytes: its record in the DHT has it too."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from .allocation import NodeLoad

_FORMAT = struct.Struct("<BeHHH")  # idle share of 255, speed; queues: of models that it has, owned, wanted


UNKNOWN = NodeLoad(0.0, 0.0)


@dataclass(frozen=True)
class Announced:
    """What a member says of itself."""

    load: NodeLoad = UNKNOWN
    models: tuple[str, ...] | None = None  # that it trains; None: it does not say
    owned: tuple[str, ...] = ()  # queues that it owns
    wanted: tuple[str, ...] = ()  # queues that it should own whenever it is there

    def has(self, model: str) -> bool:
        """Whether it trains a model; who does not say may."""
        return self.models is None or model in self.models


def announced(
    names: Sequence[str], models: Sequence[str], owned: Sequence[str], wanted: Sequence[str], load: NodeLoad
) -> bytes:
    """Speed, idle share, and which of the job's models this node has, owns the queues of, and wants to own."""
    share = round(255 * min(1.0, max(0.0, load.idle)))
    masks = [_bits(names, chosen) for chosen in (models, owned, wanted)]
    return _FORMAT.pack(share, min(60_000.0, load.speed), *masks)


def read_announced(state: bytes, names: Sequence[str]) -> Announced:
    """What a member announced. What cannot be read says nothing."""
    if len(state) != _FORMAT.size:
        return Announced()
    share, speed, *masks = _FORMAT.unpack(state)
    known = speed if speed == speed and 0.0 <= speed < 1e6 else 0.0
    models, owned, wanted = (tuple(name for place, name in enumerate(names) if mask >> place & 1) for mask in masks)
    return Announced(NodeLoad(known, share / 255), models, owned, wanted)


def _bits(names: Sequence[str], chosen: Sequence[str]) -> int:
    return sum(1 << place for place, name in enumerate(names) if name in chosen)
