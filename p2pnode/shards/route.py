"""Routes: which shard goes to which peer next, and why.

A rule gives every pair of a shard and a peer a worth and the reason for it; the pair of the highest worth travels. What
holds for every rule: nothing goes to who has it, to the most similar peer (measured: the worst receiver), over the
byte budget, to a peer without room or to one that takes and never trains; and what several models failed at does not
travel at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray

from ..wire.ids import short
from .visits import EarlierVisits

SMOOTHING_COUNT = 10.0  # of label counts, in the need of a peer
MOST_COUNTED = 1_000_000  # what a peer says it has of a label counts up to here

Counts = NDArray[np.float64]


@dataclass(frozen=True)
class ShardView:
    """What a route is chosen by, of one shard at this node."""

    id: str
    size_bytes: int
    confidence: float  # this node's mean; NaN when it was not trained on yet
    counts: Counts | None = None  # samples of each label
    visits: Mapping[str, EarlierVisits] = field(default_factory=dict)  # the last stay of each model
    quarantined: float = 0.0  # share of its samples that is put aside here

    @cached_property
    def shares(self) -> Counts:
        """Of each label."""
        counts = np.zeros(0) if self.counts is None else self.counts
        return counts / max(1.0, float(counts.sum()))


@dataclass(frozen=True)
class ShardCandidate:
    """What a route is chosen by, of one peer. All of it is the peer's word, and bounded where it counts."""

    peer: str
    model: str  # the name its visits go by
    counts: Counts | None = None  # of each label, as advertised
    similarity: float | None = None
    has: frozenset[str] = frozenset()  # shards it is known to have
    room_bytes: int = 1 << 62
    unvisited: int = 0  # shards it was given by this node and has not said it trained on

    @cached_property
    def need(self) -> Counts:
        """Of each label."""
        return needs(np.zeros(0) if self.counts is None else self.counts)


@dataclass(frozen=True)
class RouteRules:
    """The weights of the rules, and where the guard is."""

    need: float = 1.0
    confidence: float = 0.3
    random: float = 0.05
    least: float = 0.2  # worth of a shipment by these three, where labels are known
    failed: float = 0.1  # a mean confidence after a visit up to which the model failed
    failing_models: int = 3  # different ones: from here on a shard does not travel
    most_quarantined: float = 0.3  # nor does one of which more is put aside here
    forget_seconds: float = 3600.0  # after this time a visit counts for a third
    most_unvisited: int = 16  # a peer that takes and never trains gets no more


@dataclass(frozen=True)
class Shipment:
    """A shard on its way. `move`: the giver has no room for a copy of its own."""

    shard: str
    peer: str
    why: str
    size_bytes: int
    move: bool = False


Worth = tuple[float, str]


@dataclass(frozen=True)
class RouteSituation:
    """What a rule may look at besides the pair."""

    rules: RouteRules
    now: float
    rng: Random


Rule = Callable[[ShardView, ShardCandidate, RouteSituation], Worth]


def choose_shipment(
    shards: Sequence[ShardView],
    peers: Sequence[ShardCandidate],
    budget_bytes: int,
    now: float,
    rng: Random,
    room_bytes: int = 1 << 62,
    rule: str = "combined",
    rules: RouteRules | None = None,
) -> Shipment | None:
    """The shipment most worth its bytes, or None when nothing should or can travel."""
    circumstances = RouteSituation(rules or RouteRules(), now, rng)
    most = circumstances.rules.most_unvisited
    receivers = [peer for peer in not_most_similar(peers) if peer.unvisited < most]
    travelling = [
        shard for shard in shards if shard.size_bytes <= budget_bytes and not is_hopeless(shard, circumstances)
    ]
    best: tuple[float, float, ShardView, ShardCandidate, str] | None = None
    for shard in travelling:
        for peer in receivers:
            if shard.id in peer.has or shard.size_bytes > peer.room_bytes:
                continue
            worth, why = RULES[rule](shard, peer, circumstances)
            lot = rng.random()  # ties by lot, or all nodes would send the same
            if worth > 0 and (best is None or (worth, lot) > best[:2]):
                best = (worth, lot, shard, peer, why)
    if best is None:
        return None
    _, _, shard, peer, why = best
    move = room_bytes < shard.size_bytes
    return Shipment(
        shard.id, peer.peer, f"{'move' if move else 'copy'} to {short(peer.peer)}: {why}", shard.size_bytes, move
    )


def not_most_similar(peers: Sequence[ShardCandidate]) -> list[ShardCandidate]:
    """All but the most similar one; of a single peer there is no telling, and it stays."""
    known = [peer for peer in peers if peer.similarity is not None]
    if len(peers) < 2 or len(known) < 2:
        return list(peers)
    most = max(known, key=lambda peer: (peer.similarity or 0.0, peer.peer))
    return [peer for peer in peers if peer is not most]


def is_hopeless(shard: ShardView, circumstances: RouteSituation) -> bool:
    """The guard against noise in circulation: most of it is put aside, or enough models failed and none did better."""
    rules, afters = circumstances.rules, [past.after for past in shard.visits.values()]
    failed = len(afters) >= rules.failing_models and max(afters) <= rules.failed
    return failed or shard.quarantined > rules.most_quarantined


def needs(counts: Counts) -> Counts:
    """What a node with these label counts needs of each label: -ln((n[c] + 10) / (n + 10·C))."""
    bounded = np.clip(np.nan_to_num(counts, nan=0.0), 0, MOST_COUNTED)
    need: Counts = -np.log((bounded + SMOOTHING_COUNT) / (bounded.sum() + SMOOTHING_COUNT * len(bounded)))
    return need


def by_need(shard: ShardView, peer: ShardCandidate, circumstances: RouteSituation) -> Worth:
    """How much of what the peer lacks is in the shard, against an even need of 1; 0 where labels are not known."""
    if shard.counts is None or peer.counts is None or len(shard.counts) != len(peer.counts):
        return 0.0, "labels not known"
    parts = shard.shares * peer.need
    return float(parts.sum()) / math.log(max(2, len(parts))), f"it needs label {parts.argmax()}"


def by_confidence(shard: ShardView, peer: ShardCandidate, circumstances: RouteSituation) -> Worth:
    """Unlearnt here, and the more so if better elsewhere; to a model that has not seen it, or long ago, and differs."""
    if math.isnan(shard.confidence):
        return 0.0, "not trained on here yet"
    elsewhere = max((past.after for past in shard.visits.values()), default=shard.confidence)
    unlearnt = 1.0 - shard.confidence + max(0.0, elsewhere - shard.confidence)
    past = shard.visits.get(peer.model)
    fresh = (
        1.0
        if past is None
        else -math.expm1(-max(0.0, circumstances.now - past.time) / circumstances.rules.forget_seconds)
    )
    unlike = 1.0 - 0.5 * min(1.0, max(0.0, peer.similarity or 0.0))
    seen = (
        "its model has not seen it" if past is None else f"its model saw it {circumstances.now - past.time:.0f} s ago"
    )
    return unlearnt * fresh * unlike, f"confidence {shard.confidence:.2f} here, {seen}"


def by_random(shard: ShardView, peer: ShardCandidate, circumstances: RouteSituation) -> Worth:
    return 1.0 - circumstances.rng.random(), "by lot"


def combined(shard: ShardView, peer: ShardCandidate, circumstances: RouteSituation) -> Worth:
    """The weighted sum of the three, of need what is above even; the reason is of the largest part.

    Where labels are known it must be worth more than `least`: peers that lack nothing get what is hard, and no more.
    """
    rules = circumstances.rules
    need, lacking = by_need(shard, peer, circumstances)
    unlearnt, hard = by_confidence(shard, peer, circumstances)
    lot, by_lot = by_random(shard, peer, circumstances)
    parts = [
        (rules.need * max(0.0, need - 1.0), lacking),
        (rules.confidence * unlearnt, hard),
        (rules.random * lot, by_lot),
    ]
    return sum(worth for worth, _ in parts) - (rules.least if need else 0.0), max(parts)[1]


RULES: dict[str, Rule] = {"need": by_need, "confidence": by_confidence, "random": by_random, "combined": combined}
