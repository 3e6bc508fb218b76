"""Messages by which nodes tell each other of peers with similar models."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..wire.messages import Message
from ..wire.records import SignedRecord

MAX_NEIGHBOURS = 16  # announcements in one message
MAX_MARKS_BYTES = 2048

Marks = Annotated[bytes, msgspec.Meta(max_length=MAX_MARKS_BYTES)]
Announcements = Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=MAX_NEIGHBOURS)]


class SwapNeighbours(Message, frozen=True, tag="swap neighbours"):
    """Announcements that may interest the peer, and what would interest the sender: peers with models like its own."""

    announcements: Announcements
    known: Marks = b""  # short marks of those the sender knows
    floor: float = 2.0  # the least similarity worth reporting; above 1: the sender wants nothing


class NeighboursAre(Message, frozen=True, tag="neighbours"):
    announcements: Announcements
    known: Marks = b""
    floor: float = 2.0
