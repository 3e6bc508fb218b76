"""Where peers lie in a drawing: members around their circle, circles inside their community, communities side by side.

The same peers always get the same places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import cos, pi, sin

import numpy as np
from numpy.typing import NDArray

from ..wire.status import PeerState

SPACE = 1.0  # between two peers
GAP = 0.8  # around a circle
COMMUNITY_GAP = 1.3
ROOM = 0.7  # around everything
RING = 16  # members up to which they stand on a ring; more fill a disc
GOLDEN = pi * (3 - 5**0.5)
STEPS = 60  # of the search for the middle of the enclosing disc
STEP = 0.12  # of the search for a free place
MAX_GROUPS = 64  # the time to pack them grows faster than their square

Points = NDArray[np.complex128]


@dataclass(frozen=True)
class Disc:
    """A circle or a community in the drawing."""

    name: str
    centre: complex
    radius: float


@dataclass(frozen=True)
class GraphLayout:
    """The places of peers and groups. Communities have a disc only where each circle lies in one of them."""

    peers: Mapping[str, complex]
    circles: tuple[Disc, ...]
    communities: tuple[Disc, ...]
    middles: Mapping[str, complex]  # of each peer's circle

    def bounds(self) -> tuple[float, float, float, float]:
        """Left, right, low and high of everything, with room for names."""
        spots = [(place, ROOM) for place in self.peers.values()]
        spots += [(disc.centre, disc.radius + ROOM / 2) for disc in (*self.circles, *self.communities)]
        if not spots:
            return -1.0, 1.0, -1.0, 1.0
        return (
            min(at.real - reach for at, reach in spots),
            max(at.real + reach for at, reach in spots),
            min(at.imag - reach for at, reach in spots),
            max(at.imag + reach for at, reach in spots),
        )

    def outwards(self, peer: str) -> complex:
        """The unit vector from the middle of a peer's circle to the peer; downwards for a peer in the very middle."""
        away = self.peers[peer] - self.middles[peer]
        return away / abs(away) if abs(away) > 1e-9 else -1j


def lay_out(peers: Iterable[PeerState]) -> GraphLayout:
    """The place of every peer."""
    ordered = sorted(peers, key=lambda peer: (peer.community, peer.name, peer.id))
    declared = any(peer.job().circle for peer in ordered)
    groups = _largest({peer.id: peer.job().circle if declared else peer.community for peer in ordered}, ordered)
    whole = all(len({peer.community for peer in members}) == 1 for members in groups.values())
    homes: dict[str, list[str]] = {}
    for name, members in groups.items():
        homes.setdefault(members[0].community if whole else "", []).append(name)
    rings = {name: _ring(len(members)) for name, members in groups.items()}
    placed: dict[str, complex] = {}
    middles: dict[str, complex] = {}
    circles: list[Disc] = []
    communities: list[Disc] = []
    for home, centre, inner in _nested(homes, {name: _reach(ring) for name, ring in rings.items()}):
        communities += [Disc(home, centre, inner.radius)] if home else []
        for name, place in inner.centres.items():
            points = centre + place + rings[name]
            placed |= {peer.id: complex(point) for peer, point in zip(groups[name], points, strict=True)}
            middles |= {peer.id: centre + place for peer in groups[name]}
            circles += [Disc(name, centre + place, _reach(rings[name]))] if declared and name else []
    return GraphLayout(placed, tuple(circles), tuple(communities), middles)


def ring_of(sizes: Mapping[str, int]) -> dict[str, Disc]:
    """Discs side by side on a ring, in the order given, the first at the top; their areas are as the sizes."""
    radii = {name: 0.5 * max(1, size) ** 0.5 for name, size in sizes.items()}
    widths = [2 * radius + 0.5 * GAP for radius in radii.values()]
    ring = max(sum(widths) / (2 * pi), 3 * max(radii.values(), default=0.0)) if len(radii) > 1 else 0.0
    discs, done = {}, -widths[0] / 2 if widths else 0.0
    for (name, radius), width in zip(radii.items(), widths, strict=True):
        angle = pi / 2 - 2 * pi * (done + width / 2) / sum(widths)
        discs[name] = Disc(name, ring * complex(cos(angle), sin(angle)), radius)
        done += width
    return discs


def _largest(names: Mapping[str, str], peers: Sequence[PeerState]) -> dict[str, list[PeerState]]:
    """Peers by group. A peer may call its circle anything: only the largest groups are drawn, the rest is one group."""
    drawn = {name for name, _ in Counter(sorted(names.values())).most_common(MAX_GROUPS)}
    groups: dict[str, list[PeerState]] = {}
    for peer in peers:
        groups.setdefault(names[peer.id] if names[peer.id] in drawn else "", []).append(peer)
    return groups


@dataclass(frozen=True)
class _Packed:
    centres: Mapping[str, complex]
    radius: float


def _nested(homes: Mapping[str, list[str]], radii: Mapping[str, float]) -> Iterable[tuple[str, complex, _Packed]]:
    """Each community with its place and its circles packed in it."""
    inner = {home: _pack({name: radii[name] for name in names}, GAP) for home, names in homes.items()}
    outer = _pack({home: packed.radius for home, packed in inner.items()}, COMMUNITY_GAP)
    return [(home, outer.centres[home], inner[home]) for home in homes]


def _ring(count: int) -> Points:
    """Points on a ring, or spread over a disc where there are many."""
    number = np.arange(count)
    if count == 1:
        return np.zeros(1, complex)
    points: Points = np.exp(1j * GOLDEN * number) * 0.62 * SPACE * np.sqrt(number + 0.5)
    if count <= RING:
        points = np.exp(2j * pi * number / count) * max(0.6, SPACE * count / (2 * pi))
    return points


def _reach(points: Points) -> float:
    return float(np.abs(points).max()) + 0.9 * SPACE


def _pack(radii: Mapping[str, float], gap: float) -> _Packed:
    """Centres of discs that do not overlap: the largest first, each as near to the middle of the others as it fits."""
    names = sorted(radii, key=lambda name: (-radii[name], name))
    centres: list[complex] = []
    for name in names:
        centres.append(_free_place(centres, [radii[other] for other in names], radii[name], gap))
    middle = _middle(centres, [radii[name] for name in names])
    placed = {name: at - middle for name, at in zip(names, centres, strict=True)}
    return _Packed(placed, max((abs(at) + radii[name] for name, at in placed.items()), default=0.0) + gap / 2)


def _middle(centres: Sequence[complex], radii: Sequence[float]) -> complex:
    """The middle of nearly the smallest disc around all: ever smaller steps to the farthest disc (Bădoiu, Clarkson)."""
    middle = 0j
    for step in range(1, STEPS if len(centres) > 1 else 1):
        farthest = max(range(len(centres)), key=lambda at: abs(centres[at] - middle) + radii[at])
        middle += (centres[farthest] - middle) / (step + 1)
    return middle


def _free_place(taken: Sequence[complex], radii: Sequence[float], radius: float, gap: float) -> complex:
    if not taken:
        return 0j
    middle = sum(taken) / len(taken)
    others, apart = np.array(taken), np.array(radii[: len(taken)]) + radius + gap
    start, count = 0, 4096
    while True:
        turns = np.arange(start, start + count)
        places = middle + STEP * radius * np.sqrt(turns) * np.exp(1j * GOLDEN * turns)
        free = (np.abs(places[:, None] - others[None]) >= apart[None]).all(axis=1)
        if free.any():
            return complex(places[free.argmax()])
        start += count
