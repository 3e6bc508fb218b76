"""What members of a queues job say to each other."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...wire.messages import Message
from ...wire.types import Count, Hash, JobName
from ..leases.lease import Lease, Renewal, Term
from .changes import QueuesChange
from .items import MAX_PAYLOAD, Item
from .log import MAX_STEP_BYTES, Position
from .plan import MAX_MODELS

MAX_POSITIONS = 16
MAX_PUSHED = 16
MAX_NEWS_BYTES = 640 << 10  # steps in one answer; a single longer one goes alone
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class OwnerFacts(msgspec.Struct, frozen=True, array_like=True):
    """What the owner of a queue says about it."""

    length: Count
    idle: Share
    passes: Annotated[float, msgspec.Meta(ge=0.0, le=1e12)]  # since the accuracy last changed significantly
    accuracy: Annotated[float, msgspec.Meta(ge=-1e30, le=1e30)] | None = None
    arrivals: Annotated[float, msgspec.Meta(ge=0.0, le=1e9)] = 0.0  # items a second
    converged: bool = False  # many passes and tests have not changed the accuracy


class QueueView(msgspec.Struct, frozen=True, array_like=True):
    """What a node knows of one queue: its lease, and where it is in the log."""

    queue: JobName
    positions: Annotated[tuple[Position, ...], msgspec.Meta(max_length=MAX_POSITIONS)]
    lease: Lease | None = None
    renewal: Renewal | None = None


class QueueNews(msgspec.Struct, frozen=True, array_like=True):
    """What the answering node knows of a queue."""

    queue: JobName
    head: Hash  # id of the last step it has
    lease: Lease | None
    renewal: Renewal | None
    facts: OwnerFacts | None  # as the owner said; None: it did not say, or that was long ago
    steps: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(max_length=MAX_STEP_BYTES)], ...], msgspec.Meta(max_length=4096)
    ]
    snapshot: bool = False  # the asker's places are not known here, and this node may be ahead
    agrees: bool = False  # lease and renewal are those of the asker, and left out


State = Annotated[bytes, msgspec.Meta(max_length=32)]  # what the sender announces of itself (announcing.py)
Views = Annotated[tuple[QueueView, ...], msgspec.Meta(max_length=MAX_MODELS)]


class Sync(Message, frozen=True, tag="sync queues"):
    """Asks for what the peer knows of some queues, and says what this node knows."""

    queues: Views
    change: Count = 0  # number of the founder's latest change that this node knows
    state: State = b""


class SyncIs(Message, frozen=True, tag="queues are"):
    queues: Annotated[tuple[QueueNews, ...], msgspec.Meta(max_length=MAX_MODELS)]
    change: QueuesChange | None = None  # where the asker knows none or an older one
    state: State = b""


class Push(Message, frozen=True, tag="push items"):
    """Items for a queue whose owner the peer should be."""

    queue: JobName
    term: Term  # of the lease by which the peer owns it
    items: Annotated[tuple[Item, ...], msgspec.Meta(min_length=1, max_length=MAX_PUSHED)]


class Pushed(Message, frozen=True, tag="pushed"):
    """How far the owner has this node's items, applied or waiting, and whether there is room for more."""

    seq: Count
    room: bool


class GetQueue(Message, frozen=True, tag="get queue"):
    """Asks for a snapshot of a queue, as a stream."""

    queue: JobName


MAX_PUSH_BYTES = MAX_PAYLOAD + (64 << 10)  # of the items in one push; a single longer one goes alone
