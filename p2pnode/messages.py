"""What nodes say to each other in calls, as msgspec structs: decoding checks types and sizes.

Unknown fields are ignored, so a neighbouring minor version can add some; an unknown message is refused by name.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from .errors import PeerMisbehaved, PeerRefused
from .records import MAX_RECORDS_PER_KEY, SignedRecord

PROTOCOL = 1  # nodes of the same number talk; see docs/design.md on versions
MAX_CALL_BYTES = 1 << 20  # a request or an answer; hivemind breaks above 4 MiB
MAX_NAME_CHARS = 40
MAX_ADDRESSES = 8
MAX_PEERS_PER_ANSWER = 64
MAX_SIGHTS = 16  # announcements told for the sake of their fingerprints, at a time
MAX_FINGERPRINT_BYTES = 512
MAX_MARKS_BYTES = 2048
MAX_SHARD_WORDS = 100  # about shards, in one call
MAX_SHARD_WORD_BYTES = 4096
MAX_SHARD_MARKS_BYTES = 1 << 16
MAX_PLACE_BYTES = 60_000  # of a snapshot that others are asked about: some 800 chains of a delta set

Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARS)]
Text = Annotated[str, msgspec.Meta(max_length=200)]
AddressText = Annotated[str, msgspec.Meta(max_length=300)]
Addresses = Annotated[tuple[AddressText, ...], msgspec.Meta(max_length=MAX_ADDRESSES)]
RunText = Annotated[str, msgspec.Meta(max_length=64)]
Proof = Annotated[bytes, msgspec.Meta(max_length=32)]
Fingerprint = Annotated[bytes, msgspec.Meta(max_length=MAX_FINGERPRINT_BYTES)]
Marks = Annotated[bytes, msgspec.Meta(max_length=MAX_MARKS_BYTES)]
SnapshotName = Annotated[bytes, msgspec.Meta(max_length=16)]


class Message(msgspec.Struct, frozen=True, tag=True, tag_field="is"):
    """Base of all messages; the tag is the class name."""


# ---- what a node says about itself, inside a signed record ----


class Announcement(msgspec.Struct, frozen=True):
    """A node's word about itself; the record around it says who and until when."""

    name: Name
    run: RunText
    addresses: Addresses
    protocol: int = PROTOCOL
    role: Text = "node"  # node | bootstrap | observer
    started: float = 0.0  # swarm time this process joined; tells a restart from a long life
    left: bool = False
    circle: Name = ""  # whose delta set it shares; all of the run when nothing is said
    fingerprint: Fingerprint = b""  # what its model has learned; none before it has trained


# ---- requests, each above its answer ----


class Ping(Message, frozen=True):
    """Are you there, and what time is it?"""


class Pong(Message, frozen=True):
    time: float  # swarm time of the answering peer; 0 while it does not know
    known: int = 0  # members of its run it knows: a hint that asking it for peers is worth while
    knows_you: bool = True  # False: it has forgotten the asking peer, or never heard of it


class Hello(Message, frozen=True):
    """First words to a peer: who I am (signed), and which run I look for ("" = whichever you are in)."""

    protocol: int
    run: RunText = ""
    proof: Proof = b""
    announcement: SignedRecord | None = None


class Welcome(Message, frozen=True):
    protocol: int
    time: float
    run: RunText = ""  # "" from a bootstrap, which is in no run
    role: Text = "node"
    name: Name = ""
    private: bool = False
    announcement: SignedRecord | None = None


class Store(Message, frozen=True):
    """Keep these records of mine."""

    records: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=16)]


class Stored(Message, frozen=True):
    verdicts: Annotated[tuple[Text, ...], msgspec.Meta(max_length=16)]


class Find(Message, frozen=True):
    """Records under a key that expire after `newer_than`; `after` pages on by peer id."""

    key: Annotated[str, msgspec.Meta(max_length=256)]
    newer_than: float = 0.0
    after: Annotated[str, msgspec.Meta(max_length=64)] = ""


class Found(Message, frozen=True):
    records: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=MAX_RECORDS_PER_KEY)]
    more: bool = False


class GetPeers(Message, frozen=True):
    """Members of a run you have heard of lately."""

    run: RunText
    proof: Proof = b""


class Peers(Message, frozen=True):
    announcements: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=MAX_PEERS_PER_ANSWER)]


class SwapSights(Message, frozen=True):
    """Announcements that may interest you, and what would interest me: peers whose models are like mine."""

    run: RunText
    announcements: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=MAX_SIGHTS)]
    known: Marks = b""  # short marks of those I know
    floor: float = 2.0  # how alike they must be to be worth telling; above 1: I want nothing
    proof: Proof = b""


class Sights(Message, frozen=True):
    announcements: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=MAX_SIGHTS)]
    known: Marks = b""
    floor: float = 2.0


class GetManifest(Message, frozen=True):
    """What the run is."""

    run: RunText
    proof: Proof = b""


class ManifestIs(Message, frozen=True):
    manifest: Annotated[bytes, msgspec.Meta(max_length=65536)]


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


ShardText = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
ShardWords = Annotated[
    tuple[Annotated[bytes, msgspec.Meta(max_length=MAX_SHARD_WORD_BYTES)], ...],
    msgspec.Meta(max_length=MAX_SHARD_WORDS),
]
ShardMarks = Annotated[bytes, msgspec.Meta(max_length=MAX_SHARD_MARKS_BYTES)]


class TellShards(Message, frozen=True):
    """Words about shards, which p2pnode.handoff understands; `meet`: here is what I know, tell me what is news."""

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


class GetView(Message, frozen=True):
    """How are you doing? For who watches; answered by members of the run alone."""

    run: RunText
    proof: Proof = b""


class ViewExchange(msgspec.Struct, frozen=True, array_like=True):
    """All exchanges a node began with one partner."""

    peer: Annotated[str, msgspec.Meta(max_length=64)]
    last: float  # when the latest was
    count: Annotated[int, msgspec.Meta(ge=0)]
    sent_bytes: Annotated[int, msgspec.Meta(ge=0)]
    received_bytes: Annotated[int, msgspec.Meta(ge=0)]
    loss_change: float | None = None  # of the training loss over the latest merge with it


class ViewIs(Message, frozen=True):
    """What a node says of its learning; None where it has nothing to say."""

    round: Annotated[int, msgspec.Meta(ge=0)] | None = None
    loss: float | None = None
    accuracy: float | None = None
    update_norm: float | None = None
    steps_per_second: float | None = None
    head: Annotated[int, msgspec.Meta(ge=0)] | None = None  # seq of its newest entry
    shards: Annotated[int, msgspec.Meta(ge=0)] | None = None  # that travel and are there
    exchanges: Annotated[tuple[ViewExchange, ...], msgspec.Meta(max_length=64)] = ()


class Refused(Message, frozen=True):
    """The answer no, to any request."""

    code: Text
    why: Text = ""


Meeting = Ping | Hello | Store | Find | GetPeers | GetManifest | GetView | SwapSights
Learning = Exchange | Bridge | GetCircle | TellShards | GetNeeds | Visit | VisitOver
Request = Meeting | Learning
Met = Pong | Welcome | Stored | Found | Peers | ManifestIs | ViewIs | Sights
Answer = Met | Exchanged | CircleIs | ShardsTold | NeedsAre | VisitIs | Refused


# ---- requests answered by a stream ----


class StreamRequest(msgspec.Struct, frozen=True, tag=True, tag_field="is"):
    """About one model of a run; the tag is the class name."""

    run: RunText
    model: Name
    proof: Proof


class GetSnapshot(StreamRequest, frozen=True):
    """The outline of what a newcomer needs: of where the asked node is, or was `at` the place of another's snapshot."""

    at: Annotated[bytes, msgspec.Meta(max_length=MAX_PLACE_BYTES)] = b""
    circle: Name = ""  # whose weights are wanted


class GetChunks(StreamRequest, frozen=True):
    """Chunks in a row of the snapshot whose outline has this name."""

    snapshot: SnapshotName
    first: Annotated[int, msgspec.Meta(ge=0)]
    stop: Annotated[int, msgspec.Meta(ge=1)]


class GetKept(StreamRequest, frozen=True):
    """What comes along with a snapshot."""

    snapshot: SnapshotName


class GetShard(StreamRequest, frozen=True):
    """A shard's visit history and samples; the certificate says why the asking peer may have them."""

    shard: ShardText
    certificate: Annotated[bytes, msgspec.Meta(max_length=MAX_SHARD_WORD_BYTES)]


class GetWeights(StreamRequest, frozen=True):
    """A copy of the asked node's weights, which come to visit."""


SnapshotRequest = GetSnapshot | GetChunks | GetKept
AnyStreamRequest = SnapshotRequest | GetShard | GetWeights


_request_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answer_decoder: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
_stream_request_decoder: msgspec.msgpack.Decoder[AnyStreamRequest] = msgspec.msgpack.Decoder(AnyStreamRequest)
_announcement_decoder = msgspec.msgpack.Decoder(Announcement)
_encoder = msgspec.msgpack.Encoder()

A = TypeVar("A", bound=Message)


def encode(message: Message | Announcement | StreamRequest) -> bytes:
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
    if len(data) > MAX_CALL_BYTES:
        raise PeerMisbehaved(f"message of {len(data)} bytes, {MAX_CALL_BYTES} allowed")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise PeerMisbehaved(f"malformed message: {str(error)[:120]}") from None
