"""Messages between nodes: their bounds, their base class, and those that the node itself understands.

Messages of a feature lie in its package (merging, circles, shards, ...). Decoding checks types and sizes. Unknown
fields are ignored, so that a minor version can add some; an unknown message is refused by name.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar, Union

import msgspec

from .errors import PeerMisbehaved, PeerRefused
from .records import MAX_RECORDS_PER_KEY, SignedRecord
from .status import MAX_JOBS, ExchangeRow, JobStates
from .types import JobName, RunText, decoded

PROTOCOL = 4  # nodes of the same number understand each other
MAX_CALL_BYTES = 1 << 20  # a request or an answer; hivemind breaks above 4 MiB
MAX_NAME_CHARS = 40
MAX_ADDRESSES = 8
MAX_PEERS_PER_ANSWER = 64
MAX_FINGERPRINT_BYTES = 512
MAX_JOB_FILE_BYTES = 1 << 18
HINT_BYTES = 8

Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARS)]
Text = Annotated[str, msgspec.Meta(max_length=200)]
AddressText = Annotated[str, msgspec.Meta(max_length=300)]
Addresses = Annotated[tuple[AddressText, ...], msgspec.Meta(max_length=MAX_ADDRESSES)]
Proof = Annotated[bytes, msgspec.Meta(max_length=32)]
Fingerprint = Annotated[bytes, msgspec.Meta(max_length=MAX_FINGERPRINT_BYTES)]


class Message(msgspec.Struct, frozen=True, tag=True, tag_field="is"):
    """Base of all messages. Each class names its own short tag, which is what travels."""

    urgent: ClassVar[bool] = False  # small, and how peers see that a node lives: never waits for bandwidth limits
    limited_by_job: ClassVar[bool] = False  # the job refuses too many itself: those it answers cost no call credit


class JobAnnouncement(msgspec.Struct, frozen=True, array_like=True):
    """What a node announces of a job it takes part in."""

    job: JobName
    circle: Name = ""  # whose delta set it shares; that of the whole run when empty
    fingerprint: Fingerprint = b""  # of what its model has learned; empty before it has trained
    state: Annotated[bytes, msgspec.Meta(max_length=32)] = b""  # whatever a kind of work announces besides


class Announcement(msgspec.Struct, frozen=True):
    """What a node publishes about itself; the record around it names the node and the expiry."""

    name: Name
    run: RunText
    addresses: Addresses
    protocol: int = PROTOCOL
    role: Text = "node"  # node | bootstrap | observer
    started: float = 0.0  # swarm time this process joined; tells a restart from a long life
    left: bool = False
    jobs: Annotated[tuple[JobAnnouncement, ...], msgspec.Meta(max_length=MAX_JOBS)] | None = None  # None: not known yet

    def job(self, job: str) -> JobAnnouncement:
        """What is announced of a job; an empty one where that is nothing."""
        return next(
            (one for one in self.jobs or () if one.job == job),
            JobAnnouncement(job),
        )


# ---- requests to the node itself, each above its answer ----


class Ping(Message, frozen=True, tag="ping"):
    """Asks whether the peer is there, and for its time."""

    urgent: ClassVar[bool] = True


class Pong(Message, frozen=True, tag="pong"):
    time: float  # swarm time of the answering peer; 0 while it does not know
    known: int = 0  # members of its run it knows: a hint whether asking it for peers is worthwhile
    knows_you: bool = True  # False: it has forgotten the asking peer, or never heard of it


class Hello(Message, frozen=True, tag="hello"):
    """Greets a peer: which protocol this node speaks, and its signed announcement."""

    urgent: ClassVar[bool] = True

    protocol: int
    announcement: SignedRecord | None = None


class Welcome(Message, frozen=True, tag="welcome"):
    protocol: int
    time: float
    run: RunText = ""  # "" from a bootstrap, which is in no run
    role: Text = "node"
    name: Name = ""
    private: bool = False
    run_hint: Annotated[bytes, msgspec.Meta(max_length=HINT_BYTES)] = b""  # RunAccess.hint of a private run
    announcement: SignedRecord | None = None


class Store(Message, frozen=True, tag="store"):
    """Asks to keep these records, which the sender signed."""

    records: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=16)]


class Stored(Message, frozen=True, tag="stored"):
    verdicts: Annotated[tuple[Text, ...], msgspec.Meta(max_length=16)]


class Find(Message, frozen=True, tag="find"):
    """Asks for at most `limit` records under a key that expire after `newer_than`; `after` pages on by peer id."""

    key: Annotated[str, msgspec.Meta(max_length=256)]
    newer_than: float = 0.0
    after: Annotated[str, msgspec.Meta(max_length=64)] = ""
    limit: Annotated[int, msgspec.Meta(ge=1)] = MAX_RECORDS_PER_KEY


class FoundRecords(Message, frozen=True, tag="found"):
    records: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=MAX_RECORDS_PER_KEY)]
    more: bool = False


class GetPeers(Message, frozen=True, tag="get peers"):
    """Asks for members of a run that the peer heard of lately. A meeting point knows those of many runs."""

    run: RunText


class Peers(Message, frozen=True, tag="peers"):
    announcements: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=MAX_PEERS_PER_ANSWER)]


# ---- requests to the node as a member of a run ----


class GetManifest(Message, frozen=True, tag="get manifest"):
    """Asks what the run is."""


class ManifestIs(Message, frozen=True, tag="manifest"):
    manifest: Annotated[bytes, msgspec.Meta(max_length=65536)]


class GetJobFile(Message, frozen=True, tag="get job file"):
    """Asks for the file that a job needs and its plan describes, such as that of its task."""

    job: JobName


class JobFileIs(Message, frozen=True, tag="job file"):
    content: Annotated[bytes, msgspec.Meta(max_length=MAX_JOB_FILE_BYTES)]


class GetView(Message, frozen=True, tag="get view"):
    """Asks how the peer is doing, to show it to people."""


class ViewIs(Message, frozen=True, tag="view"):
    """How the answering node gets on in each of its jobs, and the latest exchanges it began."""

    jobs: JobStates = msgspec.field(default_factory=dict)
    exchanges: Annotated[tuple[ExchangeRow, ...], msgspec.Meta(max_length=64)] = ()


class Refused(Message, frozen=True, tag="no"):
    """The answer no, to any request."""

    code: Text
    reason: Text = ""


# ---- encoding ----

M = TypeVar("M", bound=Message)
_encoder = msgspec.msgpack.Encoder()
_announcement_decoder = msgspec.msgpack.Decoder(Announcement)


def encode_message(message: Message | Announcement) -> bytes:
    return _encoder.encode(message)


def decode_message(data: bytes, *kinds: type[M]) -> M:
    """The message in `data`, which must be one of these kinds; PeerMisbehaved otherwise."""
    message: M = _decode(_decoder(kinds), data)
    return message


def decode_answer(data: bytes, expected: type[M]) -> M:
    """The expected answer; PeerRefused when the peer refused, PeerMisbehaved when it sent anything else."""
    answer = _decode(_decoder((expected, Refused)), data)
    if isinstance(answer, Refused):
        raise PeerRefused(answer.code, answer.reason)
    assert isinstance(answer, expected)
    return answer


def decode_announcement(data: bytes) -> Announcement:
    return _decode(_announcement_decoder, data)


@cache
def _decoder(kinds: tuple[type[Message], ...]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(Union[kinds])  # noqa: UP007  (made at run time)


T = TypeVar("T")


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes) -> T:
    try:
        return decoded(decoder, data, "message", MAX_CALL_BYTES)
    except ValueError as error:
        raise PeerMisbehaved(str(error)) from None
