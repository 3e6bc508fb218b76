"""Large swarms for drawings: each circle or community becomes one group, and all exchanges between two groups one link.

Above some hundred peers a drawing of every pair is a tangle in which nothing can be seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..wire.status import ExchangeRow, PeerState
from .graph import PeerGraph, groups_of

AGGREGATE_ABOVE = 100  # peers
MAX_GROUPS = 48  # that are drawn one by one; the smaller ones are one more
BUSIEST = 3  # links of each group that are drawn where there are many; all of them together are a tangle again
FEW_LINKS = 40
REST = "others"


@dataclass(frozen=True)
class Group:
    """The peers of one circle or community."""

    name: str
    peers: int
    silent: int  # of the peers, how many are not present
    shares: Mapping[str, int]  # how many of its peers each community has, by its label, the largest first
    me: bool = False  # whether the node that looks is among them


@dataclass(frozen=True)
class GroupLink:
    """All exchanges between the peers of two groups."""

    one: str
    other: str
    pairs: int
    size_bytes: int
    similarity: float | None  # the mean of the pairs where it is known


@dataclass(frozen=True)
class Aggregate:
    """A swarm in groups, in the order in which they are drawn; links with the least bytes first."""

    kind: str  # "circles" or "communities"
    groups: tuple[Group, ...]
    links: tuple[GroupLink, ...]


def aggregate(picture: PeerGraph) -> Aggregate | None:
    """The picture in groups; None for a small one, and where all peers are in one group or each is in its own."""
    if len(picture.peers) <= AGGREGATE_ABOVE:
        return None
    circles = {peer.id: peer.job().circle for peer in picture.peers}
    communities = {peer.id: peer.community for peer in picture.peers}
    for kind, names in (("circles", circles), ("communities", communities)):
        if 2 <= len(set(names.values()) - {""}) <= len(picture.peers) / 2:
            drawn = {name for name, _ in Counter(sorted(filter(None, names.values()))).most_common(MAX_GROUPS)}
            homes = {peer: name if name in drawn else REST for peer, name in names.items()}
            return Aggregate(kind, _groups(picture.peers, homes), _links(picture.exchanges, homes))
    return None


def _groups(peers: Sequence[PeerState], homes: Mapping[str, str]) -> tuple[Group, ...]:
    labels = groups_of(peers)
    whole = Counter(labels.values())
    members: dict[str, list[PeerState]] = {}
    for peer in peers:
        members.setdefault(homes[peer.id], []).append(peer)
    groups = [
        Group(
            name,
            len(inside),
            sum(not peer.present for peer in inside),
            dict(Counter(labels[peer.id] for peer in inside).most_common()),
            any(peer.me for peer in inside),
        )
        for name, inside in members.items()
    ]
    return tuple(sorted(groups, key=lambda group: _place(group, whole)))


def _place(group: Group, whole: Mapping[str, int]) -> tuple[bool, int, str, int, str]:
    """Groups of one community stand together, those of the largest community first; the rest is last."""
    community = next(iter(group.shares))
    digits = "".join(char for char in group.name if char in "0123456789")
    return group.name == REST, -whole[community], community, int(digits or 0), group.name


def _links(exchanges: Sequence[ExchangeRow], homes: Mapping[str, str]) -> tuple[GroupLink, ...]:
    pairs: dict[tuple[str, str], list[ExchangeRow]] = {}
    for edge in exchanges:
        one, other = sorted((homes.get(edge.one, ""), homes.get(edge.other, "")))
        if one and one != other:
            pairs.setdefault((one, other), []).append(edge)
    links = []
    for (one, other), rows in pairs.items():
        known = [row.similarity for row in rows if row.similarity is not None]
        size = sum(row.sent_bytes + row.received_bytes for row in rows)
        links.append(GroupLink(one, other, len(rows), size, fmean(known) if known else None))
    return tuple(sorted(links, key=lambda link: (link.size_bytes, link.one, link.other)))


def busiest(links: Sequence[GroupLink]) -> list[GroupLink]:
    """The links with the most bytes of each group, in the same order; all of them where there are few."""
    if len(links) <= FEW_LINKS:
        return list(links)
    kept: set[GroupLink] = set()
    seen: Counter[str] = Counter()
    for link in reversed(links):
        if min(seen[link.one], seen[link.other]) < BUSIEST:
            kept.add(link)
        seen.update((link.one, link.other))
    return [link for link in links if link in kept]
