"""Which group a peer is shown in, in which colour, under which name; alike in figures and in HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..wire.ids import short
from .graph import PeerGraph, PeerView
from .text import clean

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
