"""Messages between nodes about shards, each request above its answer."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..wire.messages import Message, Proof
from ..wire.types import ShardText
from .handoff.messages import MAX_BYTES

MAX_MESSAGES = 100  # in one call
MAX_MARKS_BYTES = 1 << 16

HandoffBytes = Annotated[bytes, msgspec.Meta(max_length=MAX_BYTES)]  # an encoded message or certificate of handoff
HandoffMessages = Annotated[tuple[HandoffBytes, ...], msgspec.Meta(max_length=MAX_MESSAGES)]
ShardMarks = Annotated[bytes, msgspec.Meta(max_length=MAX_MARKS_BYTES)]


class SyncShards(Message, frozen=True, omit_defaults=True, tag="sync"):
    """Messages about shards. With `compare` the sender lists what it knows and asks for news."""

    messages: HandoffMessages = ()
    compare: bool = False
    marks: ShardMarks = b""  # short marks of the certificates the sender knows
    prove: ShardText | None = None  # asks to prove possession of this shard's samples, by a hash over `nonce` and them
    nonce: Proof = b""


class ShardsSynced(Message, frozen=True, tag="synced"):
    messages: HandoffMessages = ()
    marks: ShardMarks = b""
    possession: Proof = b""  # the hash asked for; empty: the samples are not here


class GetNeeds(Message, frozen=True, tag="get needs"):
    """Asks what data the peer could use, before a shard is passed on."""


class NeedsAre(Message, frozen=True, tag="needs"):
    """What a node trains on, as it reports itself."""

    room_bytes: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    counts: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)], ...], msgspec.Meta(max_length=1024)] = ()
    visited: ShardMarks = b""  # beginnings of the ids of shards that it has and its model has visited
    waiting: ShardMarks = b""  # beginnings of the ids of shards that it has and its model has not visited yet


class GetShard(Message, frozen=True, tag="shard"):
    """A stream of a shard's visit history and samples; the certificate shows that the asking peer may have them."""

    shard: ShardText
    certificate: HandoffBytes
