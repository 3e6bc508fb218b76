"""The peer graph: one frozen picture of a swarm at one moment, whoever drew it; pages and notebooks show it.

A field that its source does not know is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ..wire.ids import short
from ..wire.run import GENESIS, Manifest
from ..wire.status import ExchangeRow, Guest, Machine, NodeEvent, NodeStatus, PeerRow, ShardRow, Traffic, TrainStatus
from .text import clean


class PeerView(msgspec.Struct, frozen=True, omit_defaults=True):
    """One peer, the node that looks among them."""

    id: str
    name: str
    role: str
    present: bool
    me: bool = False
    circle: str = ""
    community: str = ""  # the id of its first member
    similarity: float | None = None  # to the node that looks
    round: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    update_norm: float | None = None
    steps_per_second: float | None = None
    shards: int | None = None
    faults: int = 0
    heard_seconds_ago: float | None = None
    latency_ms: float | None = None
    bytes_per_second: float | None = None  # of large calls to it
    reached: str = ""  # directly, through a relay
    head: int | None = None  # of its log: the seq of its newest entry
    why: str = ""  # it was last chosen as a partner


class ExchangeView(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that went between two peers lately, in one line: an edge."""

    one: str
    other: str
    last: float  # time of the latest
    count: int
    sent_bytes: int  # by `one`
    received_bytes: int
    similarity: float | None = None
    loss_change: float | None = None  # of the training loss over the latest merge after one


class PeerGraph(msgspec.Struct, frozen=True, tag="view", tag_field="is"):
    """A swarm as somebody saw it at `time`."""

    time: float
    me: str
    run: str
    condition: str
    why: str
    peers: tuple[PeerView, ...]
    exchanges: tuple[ExchangeView, ...] = ()
    learning: TrainStatus | None = None
    traffic: Traffic = Traffic()
    events: tuple[NodeEvent, ...] = ()
    invite: str = ""
    guest: Guest = Guest()
    machine: Machine | None = None
    shards: tuple[ShardRow, ...] = ()  # this and the rest: for notebooks; the page asks for what it needs of them
    manifest: Manifest | None = None  # what the run is
    progress: float | None = None  # of the run from many communities to one, 0 to 1
    fingerprints: dict[str, bytes] = {}  # by peer: similarities and the dendrogram follow from them


def graph_of(status: NodeStatus, now: float) -> PeerGraph:
    """What a node knows, at `now` by its own clock."""
    alike = {row.id: row.similarity for row in status.peers}
    return PeerGraph(
        time=now,
        me=status.id,
        run=status.run,
        condition=status.condition,
        why=status.why,
        peers=in_circles((_me(status), *map(_peer, status.peers))),
        exchanges=tuple(_alike(edge, status, alike) for edge in edges(status.exchanges)),
        learning=status.learning,
        traffic=status.traffic,
        events=status.events,
        invite="" if status.private else status.invite,  # a private run's carries its key
        guest=status.guest,
        machine=status.machine,
    )


def in_circles(peers: Iterable[PeerView]) -> tuple[PeerView, ...]:
    """Where a run has several circles, its first one is shown by a name too."""
    known = tuple(peers)
    if not any(peer.circle for peer in known):
        return known
    called = [peer.circle or (GENESIS if peer.role == "node" else "") for peer in known]
    return tuple(msgspec.structs.replace(peer, circle=circle) for peer, circle in zip(known, called, strict=True))


def edges(rows: Iterable[ExchangeRow]) -> tuple[ExchangeView, ...]:
    """One edge for each pair, from the rows of both ends."""
    pairs: dict[tuple[str, str], ExchangeView] = {}
    for row in rows:
        forward = row.one < row.other
        one, other = (row.one, row.other) if forward else (row.other, row.one)
        sent, received = (row.sent_bytes, row.received_bytes) if forward else (row.received_bytes, row.sent_bytes)
        known = pairs.get((one, other), ExchangeView(one, other, row.last, 0, 0, 0))
        pairs[one, other] = ExchangeView(
            one,
            other,
            max(known.last, row.last),
            known.count + row.count,
            known.sent_bytes + sent,
            known.received_bytes + received,
            loss_change=row.loss_change if row.last >= known.last else known.loss_change,
        )
    return tuple(pairs.values())


def _alike(edge: ExchangeView, status: NodeStatus, alike: Mapping[str, float | None]) -> ExchangeView:
    """An edge of the node that looks, with how alike the two are."""
    if status.id not in (edge.one, edge.other):
        return edge
    other = edge.other if edge.one == status.id else edge.one
    return msgspec.structs.replace(edge, similarity=alike.get(other))


def peer_of(id: str, name: str, role: str, learning: TrainStatus | None) -> PeerView:
    """A node as it knows itself."""
    if learning is None:
        return PeerView(id, name, role, present=True)
    return PeerView(
        id=id,
        name=name,
        role=role,
        present=True,
        circle=learning.circle,
        community=learning.community,
        round=learning.rounds,
        loss=learning.loss,
        accuracy=learning.accuracy,
        update_norm=learning.update_norm,
        steps_per_second=learning.steps_per_second,
        head=learning.head,
        shards=learning.shards,
    )


def _me(status: NodeStatus) -> PeerView:
    own = peer_of(status.id, status.name, status.role, status.learning)
    return msgspec.structs.replace(own, me=True, similarity=1.0)


def _peer(row: PeerRow) -> PeerView:
    return PeerView(
        id=row.id,
        name=row.name,
        role=row.role,
        present=row.present,
        circle=row.circle,
        community=row.community,
        similarity=row.similarity,
        why=row.chosen,
        round=row.round,
        loss=row.loss,
        accuracy=row.accuracy,
        update_norm=row.update_norm,
        steps_per_second=row.steps_per_second,
        head=row.head,
        shards=row.shards,
        faults=row.faults,
        heard_seconds_ago=row.heard_seconds_ago,
        latency_ms=row.latency_ms,
        bytes_per_second=row.bytes_per_second,
        reached=_reached(row.addresses),
    )


def _reached(addresses: tuple[str, ...]) -> str:
    if not addresses:
        return ""
    return "through a relay" if all("/p2p-circuit" in address for address in addresses) else "directly"


COLOURS = ("#2f6fed", "#e0762b", "#1f9d68", "#c2408f", "#7b61ff", "#b08900", "#0d9bb5", "#d1495b", "#6b8e23", "#8d6e63")
OTHERS = "#9aa5b4"


def groups_of(peers: Sequence[PeerView]) -> Mapping[str, str]:
    """Each peer's community by name, or its circle where no community is known; "" where a peer has none."""
    if any(peer.community for peer in peers):
        return {peer.id: f"community {short(peer.community)}" if peer.community else "" for peer in peers}
    return {peer.id: clean(peer.circle, 24) for peer in peers}


def colours_of(groups: Mapping[str, str]) -> Mapping[str, str]:
    """A colour for each of the largest groups of more than one peer, the largest first."""
    counts = Counter(name for name in groups.values() if name)
    ranked = sorted((name for name in counts if counts[name] > 1), key=lambda name: (-counts[name], name))
    return dict(zip(ranked, COLOURS, strict=False))


def names_of(picture: PeerGraph) -> Mapping[str, str]:
    """What to write beside each peer."""
    return {peer.id: clean(peer.name, 20) or short(peer.id) for peer in picture.peers}


def headline(picture: PeerGraph) -> str:
    """What there is to see, in words."""
    communities = {peer.community for peer in picture.peers if peer.community}
    circles = {peer.circle for peer in picture.peers if peer.circle}
    parts = [
        _count(sum(peer.present for peer in picture.peers), "peer", "peers"),
        _count(len(communities), "community", "communities") if communities else "",
        _count(len(circles), "circle", "circles") if circles else "",
        _count(len(picture.exchanges), "pair that exchanged", "pairs that exchanged"),
    ]
    return ", ".join(part for part in parts if part)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
