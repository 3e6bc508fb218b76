"""Requests that are answered by a stream."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..types import MAX_PLACE_BYTES, RunText, ShardText
from .bounds import MAX_SHARD_WORD_BYTES, Name, Proof, SnapshotName


class StreamRequest(msgspec.Struct, frozen=True, tag=True, tag_field="is"):
    """About one model of a run; the tag is the class name."""

    run: RunText
    model: Name
    proof: Proof


class GetSnapshot(StreamRequest, frozen=True, tag="GetSnapshot"):
    """The outline of what a newcomer needs: of where the asked node is, or was `at` the place of another's snapshot."""

    at: Annotated[bytes, msgspec.Meta(max_length=MAX_PLACE_BYTES)] = b""
    circle: Name = ""  # whose weights are wanted


class GetChunks(StreamRequest, frozen=True, tag="GetChunks"):
    """Chunks in a row of the snapshot whose outline has this name."""

    snapshot: SnapshotName
    first: Annotated[int, msgspec.Meta(ge=0)]
    stop: Annotated[int, msgspec.Meta(ge=1)]


class GetKept(StreamRequest, frozen=True, tag="GetKept"):
    """What comes along with a snapshot."""

    snapshot: SnapshotName


class GetShard(StreamRequest, frozen=True, tag="GetShard"):
    """A shard's visit history and samples; the certificate says why the asking peer may have them."""

    shard: ShardText
    certificate: Annotated[bytes, msgspec.Meta(max_length=MAX_SHARD_WORD_BYTES)]


class GetWeights(StreamRequest, frozen=True, tag="GetWeights"):
    """A copy of the asked node's weights, which come to visit."""


SnapshotRequest = GetSnapshot | GetChunks | GetKept
AnyStreamRequest = SnapshotRequest | GetShard | GetWeights
