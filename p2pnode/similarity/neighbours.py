"""The peers whose models are most similar to ours, found by gossip, and some random ones, in a table of bounded size.

The method is that of T-Man (Jelasity and others, 2009) and Vicinity (Voulgaris and van Steen, 2013): once a round two
nodes recommend to each other the few peers nearest to the *other's* fingerprint. A neighbour of a neighbour is likely a
neighbour, so everybody knows its nearest peers after a number of rounds that grows with the logarithm of the swarm. The
random part is a sample of the directory, not of what peers recommend, and is not chosen by similarity: it finds unknown
regions, and lying fingerprints cannot displace it.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from ..wire.ids import PeerId
from .fingerprint import DIMENSIONS, Row, Rows, similarities

NEAR = 48  # nearest peers in the table
FAR = 24  # random peers in the table
RECOMMENDED = 8  # peers recommended at a time
ASKED_AMONG = 16  # nearest peers, of which the one asked longest ago is asked next
ASK_FAR_EVERY = 4  # requests: then anyone in the table is asked
YOUNG = 24  # requests, up to which a node makes three per round, so that others hear of it soon
ASKED_REMEMBERED = 256
MARK_BYTES = 4


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A peer, the numbers of its fingerprint, and when its announcement expires."""

    peer: PeerId
    row: Row
    expiry: float

    @cached_property
    def mark(self) -> bytes:
        """Four bytes by which a node says that it knows the peer; a collision only delays a recommendation."""
        return blake3(self.peer.encode()).digest(MARK_BYTES)


class Neighbours:
    """The peers this node knows by fingerprint. The caller has checked them: signed, fresh, comparable with ours."""

    def __init__(self, own: PeerId, row: Row, near: int = NEAR, far: int = FAR) -> None:
        self._own = own
        self._row = row
        self._near = near
        self._far = far
        self._known: dict[PeerId, Neighbour] = {}
        self._random: dict[PeerId, None] = {}  # the random part, oldest first
        self._asked: dict[PeerId, int] = {}
        self._asks = 0
        self._order: list[PeerId] = []  # most similar first, ties by id; the next two are in the same order
        self._rows: Rows = np.empty((0, DIMENSIONS), np.int8)
        self._similarity: NDArray[np.float64] = np.empty(0)

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._known

    def rows(self) -> dict[PeerId, Row]:
        """All known fingerprints."""
        return {peer: each.row for peer, each in self._known.items()}

    def nearest(self, count: int) -> list[PeerId]:
        """The known peers most similar to this node, best first."""
        return self._order[:count]

    def moved(self, row: Row) -> None:
        """This node's own fingerprint has changed."""
        self._row = row
        self._similarity = similarities(row, self._rows)
        self._trim()

    # ---- taking in ----

    def take_in(self, neighbours: Iterable[Neighbour]) -> None:
        """Take in peers that were met or recommended; those nearer than the known ones stay."""
        if news := [each for each in neighbours if self._is_news(each)]:
            self._take(news)

    def take_sample(self, neighbours: Iterable[Neighbour]) -> None:
        """Take in a random sample of the directory; the latest ones stay whatever their similarity."""
        others = [each for each in neighbours if each.peer != self._own]
        for each in others:
            self._random.pop(each.peer, None)
            self._random[each.peer] = None
        self._random = dict.fromkeys(list(self._random)[-self._far :])
        self._take([each for each in others if self._is_news(each)])

    def forget(self, peers: Collection[PeerId]) -> None:
        """Remove peers that left, were banned, or do not answer."""
        gone = set(peers)
        for peer in gone:
            self._random.pop(peer, None)  # when it was asked stays known: if it comes back, others are asked first
        self._keep([place for place, peer in enumerate(self._order) if peer not in gone])

    def expire(self, now: float) -> None:
        """Remove peers whose announcement has expired."""
        gone = [peer for peer, each in self._known.items() if each.expiry <= now]
        if gone:
            self.forget(gone)

    def _is_news(self, neighbour: Neighbour) -> bool:
        known = self._known.get(neighbour.peer)
        return neighbour.peer != self._own and (known is None or known.expiry < neighbour.expiry)

    def _take(self, neighbours: list[Neighbour]) -> None:
        """Add new ones; only these are compared with our own fingerprint."""
        news = {each.peer: each for each in neighbours}
        if news:
            self._keep([place for place, peer in enumerate(self._order) if peer not in news])
            rows = np.array([each.row for each in news.values()], np.int8)
            self._known.update(news)
            self._order = [*self._order, *news]
            self._rows = np.concatenate([self._rows, rows])
            self._similarity = np.concatenate([self._similarity, similarities(self._row, rows)])
        self._trim()

    def _trim(self) -> None:
        """Sort by similarity; the nearest and the random ones stay."""
        alike = self._similarity.tolist()
        ranked = sorted(range(len(alike)), key=lambda place: (-alike[place], self._order[place]))
        near, rest = ranked[: self._near], ranked[self._near :]
        self._keep([*near, *(place for place in rest if self._order[place] in self._random)])
        if len(self._asked) > ASKED_REMEMBERED:
            self._asked = {peer: when for peer, when in self._asked.items() if peer in self._known}

    def _keep(self, places: list[int]) -> None:
        """Keep these and no others, in this order."""
        if places == list(range(len(self._order))):
            return
        self._order = [self._order[place] for place in places]
        self._known = {peer: self._known[peer] for peer in self._order}
        self._rows, self._similarity = self._rows[places], self._similarity[places]

    # ---- recommending ----

    def asks_due(self) -> int:
        """How many peers to swap neighbours with this round."""
        return 3 if self._asks < YOUNG else 1

    def partner_to_ask(self, rng: random.Random) -> PeerId | None:
        """The next peer to swap neighbours with: of the nearest the one asked longest ago, at times anyone."""
        self._asks += 1
        if not self._order:
            return None
        pool = self._order if self._asks % ASK_FAR_EVERY == 0 else self.nearest(ASKED_AMONG)
        lots = {peer: (self._asked.get(peer, 0), rng.random()) for peer in pool}
        chosen = min(pool, key=lots.__getitem__)
        self._asked[chosen] = self._asks
        return chosen

    def marks(self, now: float, lasting: float) -> frozenset[bytes]:
        """The marks of peers that need not be recommended: they are known, and do not expire soon."""
        return frozenset({each.mark for each in self._known.values() if each.expiry > now + lasting})

    def floor(self) -> float:
        """The similarity from which a peer is worth recommending to this node."""
        return 0.0 if len(self._similarity) < self._near else float(self._similarity[self._near - 1])

    def recommend(self, other: PeerId, row: Row, known: Collection[bytes], floor: float = 0.0) -> list[Neighbour]:
        """The few peers nearest to another node's fingerprint that it does not know and would keep."""
        alike = similarities(row, self._rows)
        found: list[Neighbour] = []
        for place in np.argsort(-alike, kind="stable").tolist():
            if len(found) == RECOMMENDED or alike[place] < floor:
                break
            each = self._known[self._order[place]]
            if each.peer != other and each.mark not in known:
                found.append(each)
        return found
