"""How nodes meet: announcements, first words, records, who is there and how they are doing."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..records import MAX_RECORDS_PER_KEY, SignedRecord
from ..status import ExchangeRow, JobStates
from ..types import RunText
from .bounds import (
    MAX_PEERS_PER_ANSWER,
    MAX_SIGHTS,
    PROTOCOL,
    Addresses,
    Fingerprint,
    Marks,
    Message,
    Name,
    Proof,
    Text,
)


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


class Ping(Message, frozen=True, tag="Ping"):
    """Are you there, and what time is it?"""


class Pong(Message, frozen=True, tag="Pong"):
    time: float  # swarm time of the answering peer; 0 while it does not know
    known: int = 0  # members of its run it knows: a hint that asking it for peers is worth while
    knows_you: bool = True  # False: it has forgotten the asking peer, or never heard of it


class Hello(Message, frozen=True, tag="Hello"):
    """First words to a peer: which protocol I speak, and who I am (signed)."""

    protocol: int
    announcement: SignedRecord | None = None


class Welcome(Message, frozen=True, tag="Welcome"):
    protocol: int
    time: float
    run: RunText = ""  # "" from a bootstrap, which is in no run
    role: Text = "node"
    name: Name = ""
    private: bool = False
    announcement: SignedRecord | None = None


class Store(Message, frozen=True, tag="Store"):
    """Keep these records of mine."""

    records: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=16)]


class Stored(Message, frozen=True, tag="Stored"):
    verdicts: Annotated[tuple[Text, ...], msgspec.Meta(max_length=16)]


class Find(Message, frozen=True, tag="Find"):
    """Records under a key that expire after `newer_than`, so many at most; `after` pages on by peer id."""

    key: Annotated[str, msgspec.Meta(max_length=256)]
    newer_than: float = 0.0
    after: Annotated[str, msgspec.Meta(max_length=64)] = ""
    most: Annotated[int, msgspec.Meta(ge=1)] = MAX_RECORDS_PER_KEY


class FoundRecords(Message, frozen=True, tag="Found"):
    records: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=MAX_RECORDS_PER_KEY)]
    more: bool = False


class GetPeers(Message, frozen=True, tag="GetPeers"):
    """Members of a run you have heard of lately."""

    run: RunText


class Peers(Message, frozen=True, tag="Peers"):
    announcements: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=MAX_PEERS_PER_ANSWER)]


class SwapNeighbours(Message, frozen=True, tag="SwapSights"):
    """Announcements that may interest you, and what would interest me: peers whose models are like mine."""

    run: RunText
    announcements: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=MAX_SIGHTS)]
    known: Marks = b""  # short marks of those I know
    floor: float = 2.0  # how alike they must be to be worth telling; above 1: I want nothing
    proof: Proof = b""


class NeighboursAre(Message, frozen=True, tag="Sights"):
    announcements: Annotated[tuple[SignedRecord, ...], msgspec.Meta(max_length=MAX_SIGHTS)]
    known: Marks = b""
    floor: float = 2.0


class GetManifest(Message, frozen=True, tag="GetManifest"):
    """What the run is."""

    run: RunText
    proof: Proof = b""


class ManifestIs(Message, frozen=True, tag="ManifestIs"):
    manifest: Annotated[bytes, msgspec.Meta(max_length=65536)]


class GetView(Message, frozen=True, tag="GetView"):
    """How do you get on? Asked while somebody watches, and answered only to members of the run."""

    run: RunText
    proof: Proof = b""


class ViewIs(Message, frozen=True, tag="ViewIs"):
    """How the answering node gets on in each of its jobs, and the latest exchanges it began."""

    jobs: JobStates = msgspec.field(default_factory=dict)
    exchanges: Annotated[tuple[ExchangeRow, ...], msgspec.Meta(max_length=64)] = ()


class Refused(Message, frozen=True, tag="Refused"):
    """The answer no, to any request."""

    code: Text
    why: Text = ""
