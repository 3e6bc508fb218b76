"""Made-up fingerprints of a swarm, the cost of choosing partners among them, and how stable communities are."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.common import middle
from p2pnode.similarity.communities import Communities, grow
from p2pnode.similarity.fingerprint import DIMENSIONS, Rows
from p2pnode.similarity.partners import Candidate, Home, choose_partners
from p2pnode.wire.ids import PeerId

COMMUNITY = 100
CHURN = 0.01  # of the nodes, a round
VIEW = 200  # peers, where the calm of communities is measured


def drawn(kind: str, count: int, rng: np.random.Generator, community: int = COMMUNITY) -> Iterator[Rows]:
    """Fingerprints of a kind: first of all nodes, then of those that arrive in a round of churn."""
    common, communities = rng.normal(size=DIMENSIONS), max(2, count // community)
    arrivals = max(1, round(CHURN * count))
    centres, labels = rng.normal(size=(communities, DIMENSIONS)), rng.normal(size=(10, DIMENSIONS))
    while True:
        noise = rng.normal(size=(count, DIMENSIONS))
        if kind == "planted":
            values = 1.5 * common + centres[rng.integers(communities, size=count)] + 0.5 * noise
        elif kind == "mixed":
            values = 0.5 * common + 2 * rng.dirichlet(np.full(10, 0.3), size=count) @ labels + 0.1 * noise
        else:
            values = noise
        yield np.rint(values * 127 / np.abs(values).max(axis=1, keepdims=True)).astype(np.int8)
        count = arrivals


def choosing(rows: Rows, repetitions: int = 10) -> float:
    """Milliseconds of processor time for tree, cut and choice over a view of these fingerprints."""
    view = {PeerId(f"{number:07d}"): row for number, row in enumerate(rows)}
    table = [Candidate(peer, met=1) for peer in view]
    taken = []
    for turn in range(repetitions):
        begun = time.process_time()
        communities = grow(view).cut(0.5)
        me = next(iter(view))
        home = Home(me, frozenset(communities.members(communities.of[me])) - {me}, 0.2)
        choose_partners(table, communities, 9, random.Random(turn), home)
        taken.append((time.process_time() - begun) * 1e3)
    return middle(taken)


def moved(kind: str, share_gone: float = 0.05, views: int = 10) -> float:
    """The share of peers that find themselves in another community after a twentieth of the view has gone."""
    rows = next(drawn(kind, VIEW, np.random.default_rng(2), community=VIEW // 8))
    view = {PeerId(f"{number:07d}"): row for number, row in enumerate(rows)}
    rng, shares = random.Random(2), []
    for progress_made in (0.25, 0.5, 0.75):
        before = grow(view).cut(progress_made)
        for _ in range(views):
            left = {peer: row for peer, row in view.items() if rng.random() >= share_gone}
            shares.append(share_moved(before, grow(left).cut(progress_made)))
    return float(np.mean(shares))


def share_moved(before: Communities, after: Communities) -> float:
    """The share of the peers in both views that are no longer with most of their community."""
    both, stayed = before.of.keys() & after.of.keys(), 0
    for first in before.firsts:
        now = [after.of[peer] for peer in before.members(first) if peer in both]
        stayed += max((now.count(community) for community in set(now)), default=0)
    return 1 - stayed / len(both)
