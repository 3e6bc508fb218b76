"""What nodes that learn together say: exchanges, circles, shards, visits. Each request above its answer."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..types import RunText, ShardText
from .bounds import MAX_SHARD_MARKS_BYTES, MAX_SHARD_WORD_BYTES, MAX_SHARD_WORDS, Message, Name, Proof


class Exchange(Message, frozen=True, omit_defaults=True, tag="Exchange"):
    """A merge policy's question about one model of a run, or what it pushes; the policy alone knows what is in it."""

    run: RunText
    model: Name
    body: bytes
    push: bool = False
    proof: Proof = b""
    circle: Name = ""  # the asking node's


class Exchanged(Message, frozen=True, tag="Exchanged"):
    body: bytes = b""


class Bridge(Message, frozen=True, tag="Bridge"):
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


class SyncShards(Message, frozen=True, tag="TellShards"):
    """Messages about shards (shards.handoff); with `meet` the sender lists what it knows and asks for news."""

    run: RunText
    model: Name
    words: ShardWords = ()
    meet: bool = False
    marks: ShardMarks = b""  # short marks of the certificates I know
    proof: Proof = b""
    prove: ShardText | None = None  # show that you have this shard's samples, by a hash over `nonce` and them
    nonce: Proof = b""


class ShardsSynced(Message, frozen=True, tag="ShardsTold"):
    words: ShardWords = ()
    marks: ShardMarks = b""
    possession: Proof = b""  # the hash asked for; none: the samples are not here


class GetCircle(Message, frozen=True, tag="GetCircle"):
    """How a circle of the asked node's was founded."""

    run: RunText
    model: Name
    circle: Name
    proof: Proof = b""


class CircleIs(Message, frozen=True, tag="CircleIs"):
    found: Annotated[bytes, msgspec.Meta(max_length=65536)]


class GetNeeds(Message, frozen=True, tag="GetNeeds"):
    """What data could you do with? Asked when a shard is to be passed on."""

    run: RunText
    model: Name
    proof: Proof = b""


class NeedsAre(Message, frozen=True, tag="NeedsAre"):
    """What a node trains on, as it says itself."""

    room_bytes: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    counts: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)], ...], msgspec.Meta(max_length=1024)] = ()
    visited: ShardMarks = b""  # beginnings of the ids of shards that are there and were trained on
    waiting: ShardMarks = b""  # of those that are there and were not yet


class SwapModels(Message, frozen=True, tag="Visit"):
    """May a copy of my model train on your data for a few local steps, and one of yours on mine?"""

    run: RunText
    model: Name
    steps: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    proof: Proof = b""


class SwapAccepted(Message, frozen=True, tag="VisitIs"):
    """Yes: come and fetch my weights, as I fetch yours."""

    private: bool  # the data never travel
    shard_bytes: Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]  # what a shard of them weighs


class SwapResult(Message, frozen=True, tag="VisitOver"):
    """What the visit did to your weights; answered with Exchanged."""

    run: RunText
    model: Name
    delta: bytes
    proof: Proof = b""
