"""The peers whose models are most like ours, found by gossip, and some at random; a bounded table at any size of swarm.

As T-Man (Jelasity and others, 2009) and Vicinity (Voulgaris and van Steen, 2013) build their overlays: once a round two
nodes tell each other of the few peers nearest to the *other's* fingerprint. Whoever is near to someone near is likely
near itself, so that everybody knows its nearest after some rounds that grow with the logarithm of the swarm. The
random part is a sample of what the directory was read to hold, not of what peers tell, and is not chosen by similarity:
it finds unknown regions, and lying fingerprints cannot push it out.
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

NEAR = 48  # of the table: nearest peers
FAR = 24  # and random ones
TOLD = 8  # peers one tells the other of at a time
ASKED_AMONG = 16  # nearest: the one asked longest ago of them is next
ASK_FAR_EVERY = 4  # asks
YOUNG = 24  # asks: until then a node asks three a round, for others to hear of it soon
ASKED_REMEMBERED = 256
MARK_BYTES = 4


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A peer, the numbers of its fingerprint, and until when its word about itself is good."""

    peer: PeerId
    row: Row
    expiry: float

    @cached_property
    def mark(self) -> bytes:
        """Four bytes by which a node says that it knows the peer; a clash costs one peer told of later."""
        return blake3(self.peer.encode()).digest(MARK_BYTES)


class Neighbours:
    """Whom this node knows by fingerprint. Sights come in checked: signed, fresh, comparable with ours."""

    def __init__(self, own: PeerId, row: Row, near: int = NEAR, far: int = FAR) -> None:
        self._own = own
        self._row = row
        self._near = near
        self._far = far
        self._sights: dict[PeerId, Neighbour] = {}
        self._random: dict[PeerId, None] = {}  # the random part, oldest first
        self._asked: dict[PeerId, int] = {}
        self._asks = 0
        self._order: list[PeerId] = []  # most alike first, ties by name; so are the next two
        self._rows: Rows = np.empty((0, DIMENSIONS), np.int8)
        self._alike: NDArray[np.float64] = np.empty(0)

    def __len__(self) -> int:
        return len(self._sights)

    def __contains__(self, peer: PeerId) -> bool:
        return peer in self._sights

    def rows(self) -> dict[PeerId, Row]:
        """All known fingerprints."""
        return {peer: sight.row for peer, sight in self._sights.items()}

    def nearest(self, count: int) -> list[PeerId]:
        """The known peers most like this node, best first."""
        return self._order[:count]

    def moved(self, row: Row) -> None:
        """This node's own fingerprint has changed."""
        self._row = row
        self._alike = similarities(row, self._rows)
        self._trim()

    # ---- hearing ----

    def told(self, sights: Iterable[Neighbour]) -> None:
        """What another node told: kept where nearer than what is known."""
        if news := [sight for sight in sights if self._is_news(sight)]:
            self._take(news)

    def sampled(self, sights: Iterable[Neighbour]) -> None:
        """A random sample of the swarm, of the directory: the newest of them stay whatever they are like."""
        others = [sight for sight in sights if sight.peer != self._own]
        for sight in others:
            self._random.pop(sight.peer, None)
            self._random[sight.peer] = None
        self._random = dict.fromkeys(list(self._random)[-self._far :])
        self._take([sight for sight in others if self._is_news(sight)])

    def forget(self, peers: Collection[PeerId]) -> None:
        """Peers that left, were banned, or do not answer."""
        gone = set(peers)
        for peer in gone:
            self._random.pop(peer, None)  # when it was asked stays known: should it come back, others come first
        self._keep([place for place, peer in enumerate(self._order) if peer not in gone])

    def expire(self, now: float) -> None:
        gone = [peer for peer, sight in self._sights.items() if sight.expiry <= now]
        if gone:
            self.forget(gone)

    def _is_news(self, sight: Neighbour) -> bool:
        known = self._sights.get(sight.peer)
        return sight.peer != self._own and (known is None or known.expiry < sight.expiry)

    def _take(self, sights: list[Neighbour]) -> None:
        """Take in what is new; only that is compared with our own fingerprint."""
        news = {sight.peer: sight for sight in sights}
        if news:
            self._keep([place for place, peer in enumerate(self._order) if peer not in news])
            rows = np.array([sight.row for sight in news.values()], np.int8)
            self._sights.update(news)
            self._order = [*self._order, *news]
            self._rows = np.concatenate([self._rows, rows])
            self._alike = np.concatenate([self._alike, similarities(self._row, rows)])
        self._trim()

    def _trim(self) -> None:
        """Most alike first; the nearest and the random ones stay."""
        alike = self._alike.tolist()
        ranked = sorted(range(len(alike)), key=lambda place: (-alike[place], self._order[place]))
        near, rest = ranked[: self._near], ranked[self._near :]
        self._keep([*near, *(place for place in rest if self._order[place] in self._random)])
        if len(self._asked) > ASKED_REMEMBERED:
            self._asked = {peer: when for peer, when in self._asked.items() if peer in self._sights}

    def _keep(self, places: list[int]) -> None:
        """These and no others, in this order."""
        if places == list(range(len(self._order))):
            return
        self._order = [self._order[place] for place in places]
        self._sights = {peer: self._sights[peer] for peer in self._order}
        self._rows, self._alike = self._rows[places], self._alike[places]

    # ---- telling ----

    def asks_due(self) -> int:
        """How many to swap sights with this round."""
        return 3 if self._asks < YOUNG else 1

    def whom_to_ask(self, rng: random.Random) -> PeerId | None:
        """Whom to swap sights with next: of the nearest the one not asked for longest, at times anyone."""
        self._asks += 1
        if not self._order:
            return None
        pool = self._order if self._asks % ASK_FAR_EVERY == 0 else self.nearest(ASKED_AMONG)
        lots = {peer: (self._asked.get(peer, 0), rng.random()) for peer in pool}
        chosen = min(pool, key=lots.__getitem__)
        self._asked[chosen] = self._asks
        return chosen

    def marks(self, now: float, lasting: float) -> frozenset[bytes]:
        """What the other need not tell: the marks of those known and good for a while yet."""
        return frozenset({sight.mark for sight in self._sights.values() if sight.expiry > now + lasting})

    def floor(self) -> float:
        """How alike a peer must be to be worth telling this node of."""
        return 0.0 if len(self._alike) < self._near else float(self._alike[self._near - 1])

    def tell(self, other: PeerId, row: Row, known: Collection[bytes], floor: float = 0.0) -> list[Neighbour]:
        """The few peers nearest to the other's fingerprint that it does not know and would keep."""
        alike = similarities(row, self._rows)
        sights: list[Neighbour] = []
        for place in np.argsort(-alike, kind="stable").tolist():
            if len(sights) == TOLD or alike[place] < floor:
                break
            sight = self._sights[self._order[place]]
            if sight.peer != other and sight.mark not in known:
                sights.append(sight)
        return sights
