"""What nodes say to each other in calls, as msgspec structs: decoding checks types and sizes.

Unknown fields are ignored, so a neighbouring minor version can add some; an unknown message is refused by name.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from ..errors import PeerMisbehaved, PeerRefused
from ..types import decoded
from .bounds import (
    MAX_ADDRESSES,
    MAX_CALL_BYTES,
    MAX_FINGERPRINT_BYTES,
    MAX_MARKS_BYTES,
    MAX_NAME_CHARS,
    MAX_PEERS_PER_ANSWER,
    MAX_SHARD_MARKS_BYTES,
    MAX_SHARD_WORD_BYTES,
    MAX_SHARD_WORDS,
    MAX_SIGHTS,
    PROTOCOL,
    Addresses,
    AddressText,
    Fingerprint,
    Marks,
    Message,
    Name,
    Proof,
    SnapshotName,
    Text,
)
from .discovery import (
    Announcement,
    Find,
    FoundRecords,
    GetManifest,
    GetPeers,
    GetView,
    Hello,
    ManifestIs,
    NeighboursAre,
    Peers,
    Ping,
    Pong,
    Refused,
    Store,
    Stored,
    SwapNeighbours,
    ViewIs,
    Welcome,
)
from .streams import (
    AnyStreamRequest,
    GetChunks,
    GetKept,
    GetShard,
    GetSnapshot,
    GetWeights,
    SnapshotRequest,
    StreamRequest,
)
from .training import (
    Bridge,
    CircleIs,
    Exchange,
    Exchanged,
    GetCircle,
    GetNeeds,
    NeedsAre,
    ShardMarks,
    ShardsSynced,
    ShardWords,
    SwapAccepted,
    SwapModels,
    SwapResult,
    SyncShards,
)

__all__ = [
    "MAX_ADDRESSES",
    "MAX_CALL_BYTES",
    "MAX_FINGERPRINT_BYTES",
    "MAX_MARKS_BYTES",
    "MAX_NAME_CHARS",
    "MAX_PEERS_PER_ANSWER",
    "MAX_SHARD_MARKS_BYTES",
    "MAX_SHARD_WORDS",
    "MAX_SHARD_WORD_BYTES",
    "MAX_SIGHTS",
    "PROTOCOL",
    "AddressText",
    "Addresses",
    "Announcement",
    "Answer",
    "AnyStreamRequest",
    "Bridge",
    "CircleIs",
    "DiscoveryAnswer",
    "DiscoveryRequest",
    "Exchange",
    "Exchanged",
    "Find",
    "Fingerprint",
    "FoundRecords",
    "GetChunks",
    "GetCircle",
    "GetKept",
    "GetManifest",
    "GetNeeds",
    "GetPeers",
    "GetShard",
    "GetSnapshot",
    "GetView",
    "GetWeights",
    "Hello",
    "ManifestIs",
    "Marks",
    "Message",
    "Name",
    "NeedsAre",
    "NeighboursAre",
    "Peers",
    "Ping",
    "Pong",
    "Proof",
    "Refused",
    "Request",
    "ShardMarks",
    "ShardWords",
    "ShardsSynced",
    "SnapshotName",
    "SnapshotRequest",
    "Store",
    "Stored",
    "StreamRequest",
    "SwapAccepted",
    "SwapModels",
    "SwapNeighbours",
    "SwapResult",
    "SyncShards",
    "Text",
    "TrainingRequest",
    "ViewIs",
    "Welcome",
    "decode_announcement",
    "decode_answer",
    "decode_request",
    "decode_stream_request",
    "encode_message",
]

DiscoveryRequest = Ping | Hello | Store | Find | GetPeers | GetManifest | GetView | SwapNeighbours
TrainingRequest = Exchange | Bridge | GetCircle | SyncShards | GetNeeds | SwapModels | SwapResult
Request = DiscoveryRequest | TrainingRequest
DiscoveryAnswer = Pong | Welcome | Stored | FoundRecords | Peers | ManifestIs | ViewIs | NeighboursAre
Answer = DiscoveryAnswer | Exchanged | CircleIs | ShardsSynced | NeedsAre | SwapAccepted | Refused

_request_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answer_decoder: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_stream_request_decoder: msgspec.msgpack.Decoder[AnyStreamRequest] = msgspec.msgpack.Decoder(AnyStreamRequest)
_announcement_decoder = msgspec.msgpack.Decoder(Announcement)
_encoder = msgspec.msgpack.Encoder()

A = TypeVar("A", bound=Message)


def encode_message(message: Message | Announcement | StreamRequest) -> bytes:
    return _encoder.encode(message)


def decode_request(data: bytes) -> Request:
    """The request in `data`; PeerMisbehaved when there is none."""
    return _decode(_request_decoder, data)


def decode_stream_request(data: bytes) -> AnyStreamRequest:
    return _decode(_stream_request_decoder, data)


def decode_announcement(data: bytes) -> Announcement:
    return _decode(_announcement_decoder, data)


def decode_answer(data: bytes, expected: type[A]) -> A:
    """The expected answer; PeerRefused when the peer said no, PeerMisbehaved when it said anything else."""
    answer = _decode(_answer_decoder, data)
    if isinstance(answer, Refused):
        raise PeerRefused(answer.code, answer.why)
    if not isinstance(answer, expected):
        raise PeerMisbehaved(f"answered {type(answer).__name__} where {expected.__name__} was due")
    return answer


T = TypeVar("T")


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoded(decoder, data, "message", MAX_CALL_BYTES)
    except ValueError as error:
        raise PeerMisbehaved(str(error)) from None
