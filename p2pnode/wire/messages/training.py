"""What nodes that learn together say: exchanges, circles, shards, visits. Each request above its answer."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..types import RunText, ShardText
from .bounds import MAX_SHARD_MARKS_BYTES, MAX_SHARD_WORD_BYTES, MAX_SHARD_WORDS, Message, Name, Proof


class Exchange(Message, frozen=True, omit_defaults=True):
    """A merge policy's question about one model of a run, or what it pushes; the policy alone knows what is in it."""

    run: RunText
    model: Name
    body: bytes
    push: bool = False
    proof: Proof = b""
    circle: Name = ""  # the asking node's


class Exchanged(Message, frozen=True):
    body: bytes = b""


class Bridge(Message, frozen=True):
    """A question to a node of another circle about its weights; answered with Exchanged."""

    run: RunText
    model: Name
    body: bytes
    proof: Proof = b""


ShardWords = Annotated[
    tuple[Annotated[bytes, msgspec.Meta(max_length=MAX_SHARD_WORD_BYTES)], ...],
    msgspec.Meta(max_length=MAX_SHARD_WORDS),
]
ShardMarks = Annotated[bytes, msgspec.Meta(max_length=MAX_SHARD_MARKS_BYTES)]


class TellShards(Message, frozen=True):
    """Messages about shards (shards.handoff); with `meet` the sender lists what it knows and asks for news."""

    run: RunText
    model: Name
    words: ShardWords = ()
    meet: bool = False
    marks: ShardMarks = b""  # short marks of the certificates I know
    proof: Proof = b""
    prove: ShardText | None = None  # show that you have this shard's samples, by a hash over `nonce` and them
    nonce: Proof = b""


class ShardsTold(Message, frozen=True):
    words: ShardWords = ()
    marks: ShardMarks = b""
    possession: Proof = b""  # the hash asked for; none: the samples are not here


class GetCircle(Message, frozen=True):
    """How a circle of the asked node's was founded."""

    run: RunText
    model: Name
    circle: Name
    proof: Proof = b""


class CircleIs(Message, frozen=True):
    found: Annotated[bytes, msgspec.Meta(max_length=65536)]


class GetNeeds(Message, frozen=True):
    """What data could you do with? Asked when a shard is to be passed on."""

    run: RunText
    model: Name
    proof: Proof = b""


class NeedsAre(Message, frozen=True):
    """What a node trains on, as it says itself."""

    room_bytes: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    counts: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)], ...], msgspec.Meta(max_length=1024)] = ()
    visited: ShardMarks = b""  # beginnings of the ids of shards that are there and were trained on
    waiting: ShardMarks = b""  # of those that are there and were not yet


class Visit(Message, frozen=True):
    """May a copy of my model train on your data for a few local steps, and one of yours on mine?"""

    run: RunText
    model: Name
    steps: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    proof: Proof = b""


class VisitIs(Message, frozen=True):
    """Yes: come and fetch my weights, as I fetch yours."""

    private: bool  # the data never travel
    shard_bytes: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]  # what a shard of them weighs


class VisitOver(Message, frozen=True):
    """What the visit did to your weights; answered with Exchanged."""

    run: RunText
    model: Name
    delta: bytes
    proof: Proof = b""
