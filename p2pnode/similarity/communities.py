"""Communities: branches of a tree that joins the most similar peers first (average linkage of 1 − similarity).

The same view gives the same tree on every machine: peers are sorted by id, distances are exact up to one rounding, and
heights are rounded to six digits, beyond which machines may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.cluster.hierarchy import cophenet, leaves_list, linkage
from scipy.spatial.distance import squareform

from ..compression.weights import Doubles
from ..wire.ids import PeerId
from .annealing import TOGETHER, cut_height
from .fingerprint import Row, similarity_table

MAX_VIEW = 256  # peers in one tree
DIGITS = 6


@dataclass(frozen=True, eq=False)
class Dendrogram:
    """The tree of the known peers. `heights[i, j]` is where peers i and j join, 0 to 1."""

    peers: tuple[PeerId, ...]  # by id
    merges: Doubles  # heights of the joins, increasing
    heights: Doubles
    leaves: tuple[PeerId, ...]  # ordered so that each branch is contiguous
    joins: Doubles  # scipy's linkage: numbers of two branches, height, peers

    @cached_property
    def place(self) -> Mapping[PeerId, int]:
        return {peer: number for number, peer in enumerate(self.peers)}

    def height(self, one: PeerId, other: PeerId) -> float | None:
        """The height at which two peers join; None when one is not in the view."""
        if one not in self.place or other not in self.place:
            return None
        return float(self.heights[self.place[one], self.place[other]])

    @property
    def top(self) -> float:
        """The height at which all peers are joined."""
        return float(self.merges[-1]) if len(self.merges) else 0.0

    def cut(self, progress: float) -> Communities:
        """The communities at this progress of the run (annealing.py). Later ones are unions of earlier ones."""
        if not self.peers:
            return Communities(self, 0.0, {})
        middle = float(np.median(self.merges)) if len(self.merges) else 0.0
        height = cut_height(middle, self._together(), progress)
        below = self.heights <= height
        first = below.argmax(axis=1)  # the first peer of a community names it
        return Communities(self, height, {peer: self.peers[first[n]] for n, peer in enumerate(self.peers)})

    def _together(self) -> float:
        """The height at which one branch has nine tenths of the peers."""
        enough = min(len(self.peers), int(np.ceil(TOGETHER * len(self.peers)))) - 1
        return float(np.sort(self.heights, axis=1)[:, enough].min())


@dataclass(frozen=True, eq=False)
class Communities:
    """The branches below a cut of the tree. A community is named after its first member."""

    dendrogram: Dendrogram
    height: float
    of: Mapping[PeerId, PeerId]

    def members(self, first: PeerId) -> list[PeerId]:
        return [peer for peer, community in self.of.items() if community == first]

    @property
    def firsts(self) -> list[PeerId]:
        return sorted(set(self.of.values()))


def grow(view: Mapping[PeerId, Row]) -> Dendrogram:
    """The tree of all peers in a view, this node included; ValueError when there are too many."""
    if len(view) > MAX_VIEW:
        raise ValueError(f"a view of {len(view)} peers; {MAX_VIEW} are possible")
    peers = tuple(sorted(view))
    if len(peers) < 2:
        return Dendrogram(peers, np.empty(0), np.zeros((len(peers),) * 2), peers, np.empty((0, 4)))
    distances = np.round(1 - similarity_table(np.stack([view[peer] for peer in peers])), DIGITS)
    joins = linkage(squareform(distances, checks=False), "average")
    heights = np.round(squareform(cophenet(joins)), DIGITS)
    leaves = tuple(peers[place] for place in leaves_list(joins))
    return Dendrogram(peers, np.round(joins[:, 2], DIGITS), heights, leaves, joins)
