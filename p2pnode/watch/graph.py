"""The peer graph: one frozen picture of a swarm at one moment, for pages, notebooks, figures and recordings.

A field that the source of a picture does not know is None or empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..wire.ids import short
from ..wire.run import GENESIS, Manifest
from ..wire.status import (
    MAIN_JOB,
    NO_LIMITS,
    ExchangeRow,
    JobState,
    JobStatus,
    LimitOptions,
    Machine,
    NodeEvent,
    NodeStatus,
    PeerState,
    ShardRow,
    Traffic,
)
from .text import circle_names, clean


class PeerGraph(Struct, frozen=True, tag="view", tag_field="is"):
    """A swarm as somebody saw it at `time`."""

    time: float
    me: str
    run: str
    condition: str
    reason: str  # for the condition
    peers: tuple[PeerState, ...]  # with the node that looks
    exchanges: tuple[ExchangeRow, ...] = ()  # one for each pair
    jobs: dict[str, JobStatus] = {}  # of the node that looks
    traffic: Traffic = Traffic()
    events: tuple[NodeEvent, ...] = ()
    invite: str = ""
    page: str = ""  # for others in the network, to read only
    run_name: str = ""
    paused: str = ""
    limits: LimitOptions = NO_LIMITS
    machine: Machine | None = None
    shards: tuple[ShardRow, ...] = ()  # this and the rest for notebooks only: the page asks for shards by itself
    manifest: Manifest | None = None  # what the run is
    progress: float | None = None  # of the run from many communities to one, 0 to 1
    fingerprints: dict[str, bytes] = {}  # by peer; similarities and the dendrogram follow from them

    def of_job(self, name: str) -> PeerGraph:
        """The same picture with the state of one job only."""
        return replace(
            self,
            peers=tuple(peer.in_job(name) for peer in self.peers),
            exchanges=tuple(edge for edge in self.exchanges if edge.job in ("", name)),
            shards=tuple(shard for shard in self.shards if shard.job in ("", name)),
            jobs={name: self.jobs[name]} if name in self.jobs else {},
        )


def graph_of(status: NodeStatus, now: float) -> PeerGraph:
    """What a node knows, at `now` by its own clock."""
    me = replace(status.own_state(), me=True, similarity=1.0)
    peers = {peer.id: peer for peer in status.peers}
    return PeerGraph(
        time=now,
        me=status.id,
        run=status.run,
        condition=status.condition,
        reason=status.reason,
        peers=with_first_circle((me, *status.peers)),
        exchanges=tuple(_with_similarity(edge, me.id, peers) for edge in edges(status.exchanges)),
        jobs=status.jobs,
        traffic=status.traffic,
        events=status.events,
        invite="" if status.private else status.invite,  # that of a private run contains its key
        run_name=status.run_name,
        page=status.page_in_network,
        paused=status.paused,
        limits=status.limits,
        machine=status.machine,
    )


def with_first_circle(peers: Iterable[PeerState]) -> tuple[PeerState, ...]:
    """The same peers, where the run's first circle, which has no name, is named as soon as a job has another one."""
    known = tuple(peers)
    split = {name for peer in known for name, state in peer.jobs.items() if state.circle}
    return tuple(_named(peer, split) if peer.role == "node" else peer for peer in known)


def _named(peer: PeerState, split: Collection[str]) -> PeerState:
    known = peer.jobs or {MAIN_JOB: JobState()}
    unnamed = {job: state for job, state in known.items() if job in split and not state.circle}
    named = {job: replace(state, circle=GENESIS) for job, state in unnamed.items()}
    return replace(peer, jobs={**known, **named}) if named else peer


def edges(rows: Iterable[ExchangeRow]) -> tuple[ExchangeRow, ...]:
    """One row for each pair in a job, the lower id first, from the rows of both ends."""
    pairs: dict[tuple[str, str, str], ExchangeRow] = {}
    for row in rows:
        forward = row.one < row.other
        one, other = (row.one, row.other) if forward else (row.other, row.one)
        sent, received = (row.sent_bytes, row.received_bytes) if forward else (row.received_bytes, row.sent_bytes)
        known = pairs.get((one, other, row.job), ExchangeRow(one, other, row.last, 0, 0, 0))
        pairs[one, other, row.job] = ExchangeRow(
            one,
            other,
            max(known.last, row.last),
            known.count + row.count,
            known.sent_bytes + sent,
            known.received_bytes + received,
            loss_change=row.loss_change if row.last >= known.last else known.loss_change,
            job=row.job,
        )
    return tuple(pairs.values())


def _with_similarity(edge: ExchangeRow, me: str, peers: Mapping[str, PeerState]) -> ExchangeRow:
    """An edge of the node that looks, with how similar the two models are."""
    peer = peers.get(edge.other if edge.one == me else edge.one)
    if me not in (edge.one, edge.other) or peer is None:
        return edge
    return replace(edge, similarity=peer.in_job(edge.job).similarity)


COLOURS = ("#2f6fed", "#e0762b", "#1f9d68", "#c2408f", "#7b61ff", "#b08900", "#0d9bb5", "#d1495b", "#6b8e23", "#8d6e63")
OTHERS = "#9aa5b4"


def groups_of(peers: Sequence[PeerState]) -> Mapping[str, str]:
    """Each peer's community by name, or its circle where no community is known; "" where a peer has none."""
    if any(peer.community for peer in peers):
        names = {peer.id: clean(peer.name, 20) or short(peer.id) for peer in peers}
        first = {peer.community: names.get(peer.community, short(peer.community)) for peer in peers}
        return {peer.id: f"community of {first[peer.community]}" if peer.community else "" for peer in peers}
    circles = circle_names(peers)
    named = {circle: f"circle {words}" if words.startswith("of ") else words for circle, words in circles.items()}
    return {peer.id: named.get(peer.job().circle, "") for peer in peers}


def colours_of(groups: Mapping[str, str]) -> Mapping[str, str]:
    """A colour for each of the largest groups of more than one peer, the largest first."""
    counts = Counter(name for name in groups.values() if name)
    ranked = sorted((name for name in counts if counts[name] > 1), key=lambda name: (-counts[name], name))
    return dict(zip(ranked, COLOURS, strict=False))


def names_of(picture: PeerGraph) -> Mapping[str, str]:
    """The label of each peer: its name, or a short id."""
    return {peer.id: clean(peer.name, 20) or short(peer.id) for peer in picture.peers}


def headline(picture: PeerGraph) -> str:
    """How many nodes, observers, communities, circles and exchanging pairs a picture shows, in words."""
    observers = sum(peer.present and peer.role == "observer" for peer in picture.peers)
    communities = {peer.community for peer in picture.peers if peer.community}
    circles = {peer.job().circle for peer in picture.peers if peer.job().circle}
    parts = [
        _count(sum(peer.present and peer.role in ("node", "") for peer in picture.peers), "node", "nodes"),
        _count(observers, "observer", "observers") if observers else "",
        _count(len(communities), "community", "communities") if communities else "",
        _count(len(circles), "circle", "circles") if circles else "",
        _count(
            len({(edge.one, edge.other) for edge in picture.exchanges}), "pair that exchanged", "pairs that exchanged"
        ),
    ]
    return ", ".join(part for part in parts if part)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
