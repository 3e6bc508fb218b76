"""Chooses which shard goes to which peer next, with the reason.

A rule gives every pair of a shard and a peer a worth and a reason, and the pair with the highest worth travels. For
every rule: no shard goes to a peer that has it, to the most similar peer (measurements showed that it gains least),
beyond the byte budget, to a peer without room, or to one that takes shards and never trains on them. A shard at which
several models failed does not travel at all.
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

SMOOTHING_COUNT = 10.0  # added to each label count, in the need of a peer
MAX_COUNTED = 1_000_000  # a peer may claim more samples of a label, but they do not count

Counts = NDArray[np.float64]


@dataclass(frozen=True)
class ShardView:
    """What is known about one shard at this node."""

    id: str
    size_bytes: int
    confidence: float  # mean of this node's model; NaN when it has not trained on it yet
    counts: Counts | None = None  # samples of each label
    visits: Mapping[str, EarlierVisits] = field(default_factory=dict)  # the last visit of each model
    quarantined: float = 0.0  # share of its samples that is quarantined here

    @cached_property
    def shares(self) -> Counts:
        """The share of each label."""
        counts = np.zeros(0) if self.counts is None else self.counts
        return counts / max(1.0, float(counts.sum()))


@dataclass(frozen=True)
class ShardCandidate:
    """What is known about one peer. All of it is the peer's claim, and bounded where it is used."""

    peer: str
    model: str  # the name its visits go by
    counts: Counts | None = None  # samples of each label
    similarity: float | None = None
    has: frozenset[str] = frozenset()  # shards it is known to have
    room_bytes: int = 1 << 62
    unvisited: int = 0  # shards that this node gave it and that it has reported no visit of
    name: str = ""  # what people call it

    @cached_property
    def need(self) -> Counts:
        """The need for each label."""
        return needs(np.zeros(0) if self.counts is None else self.counts)


@dataclass(frozen=True)
class RouteRules:
    """The weights of the rules, and the limits that hold for all of them."""

    need: float = 1.0
    confidence: float = 0.3
    random: float = 0.05
    minimum: float = 0.2  # worth of a shipment by these three, where labels are known
    failed: float = 0.1  # a model whose mean confidence after a visit is not above this has failed
    failing_models: int = 3  # different ones; then a shard no longer travels
    max_quarantined: float = 0.3  # a shard with a larger share of quarantined samples does not travel
    forget_seconds: float = 3600.0  # a visit this long ago counts for a third
    max_unvisited: int = 16  # a peer that took this many shards and trained on none gets no more


@dataclass(frozen=True)
class Shipment:
    """A shard to be sent. `move`: the giver has no room to keep a copy."""

    shard: str
    peer: str
    reason: str
    size_bytes: int
    move: bool = False


Worth = tuple[float, str]


@dataclass(frozen=True)
class RouteSituation:
    """What a rule may use besides the shard and the peer."""

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
    """The shipment of the highest worth, or None when nothing should or can travel."""
    situation = RouteSituation(rules or RouteRules(), now, rng)
    receivers = [peer for peer in not_most_similar(peers) if peer.unvisited < situation.rules.max_unvisited]
    travelling = [shard for shard in shards if shard.size_bytes <= budget_bytes and not is_hopeless(shard, situation)]
    best: tuple[float, float, ShardView, ShardCandidate, str] | None = None
    for shard in travelling:
        for peer in receivers:
            if shard.id in peer.has or shard.size_bytes > peer.room_bytes:
                continue
            worth, reason = RULES[rule](shard, peer, situation)
            lot = rng.random()  # breaks ties at random, or all nodes would send the same
            if worth > 0 and (best is None or (worth, lot) > best[:2]):
                best = (worth, lot, shard, peer, reason)
    if best is None:
        return None
    _, _, shard, peer, reason = best
    move = room_bytes < shard.size_bytes
    text = f"{'move' if move else 'copy'} to {peer.name or short(peer.peer)}: {reason}"
    return Shipment(shard.id, peer.peer, text, shard.size_bytes, move)


def not_most_similar(peers: Sequence[ShardCandidate]) -> list[ShardCandidate]:
    """All but the most similar peer, if the similarities of at least two are known."""
    known = [peer for peer in peers if peer.similarity is not None]
    if len(peers) < 2 or len(known) < 2:
        return list(peers)
    closest = max(known, key=lambda peer: (peer.similarity or 0.0, peer.peer))
    return [peer for peer in peers if peer is not closest]


def is_hopeless(shard: ShardView, situation: RouteSituation) -> bool:
    """Whether a shard is noise: too much of it is quarantined, or several models failed at it and none did better."""
    rules, afters = situation.rules, [past.after for past in shard.visits.values()]
    failed = len(afters) >= rules.failing_models and max(afters) <= rules.failed
    return failed or shard.quarantined > rules.max_quarantined


def needs(counts: Counts) -> Counts:
    """How much a node with these label counts needs each label: -ln((n[c] + 10) / (n + 10·C))."""
    bounded = np.clip(np.nan_to_num(counts, nan=0.0), 0, MAX_COUNTED)
    need: Counts = -np.log((bounded + SMOOTHING_COUNT) / (bounded.sum() + SMOOTHING_COUNT * len(bounded)))
    return need


def by_need(shard: ShardView, peer: ShardCandidate, situation: RouteSituation) -> Worth:
    """How much of what the peer lacks is in the shard; 1 for an even need, 0 where labels are not known."""
    if shard.counts is None or peer.counts is None or len(shard.counts) != len(peer.counts):
        return 0.0, "labels not known"
    parts = shard.shares * peer.need
    return float(parts.sum()) / math.log(max(2, len(parts))), f"it needs label {parts.argmax()}"


def by_confidence(shard: ShardView, peer: ShardCandidate, situation: RouteSituation) -> Worth:
    """High for a shard that this node has not learnt and others have, and a peer that has not seen it and differs."""
    if math.isnan(shard.confidence):
        return 0.0, "not trained on here yet"
    elsewhere = max((past.after for past in shard.visits.values()), default=shard.confidence)
    unlearnt = 1.0 - shard.confidence + max(0.0, elsewhere - shard.confidence)
    past = shard.visits.get(peer.model)
    unlike = 1.0 - 0.5 * min(1.0, max(0.0, peer.similarity or 0.0))
    fresh, seen = 1.0, "its model has not seen it"
    if past is not None:
        ago = situation.now - past.time
        fresh = -math.expm1(-max(0.0, ago) / situation.rules.forget_seconds)
        seen = f"its model saw it {ago:.0f} s ago"
    return unlearnt * fresh * unlike, f"confidence {shard.confidence:.2f} here, {seen}"


def by_random(shard: ShardView, peer: ShardCandidate, situation: RouteSituation) -> Worth:
    """A random worth."""
    return 1.0 - situation.rng.random(), "at random"


def combined(shard: ShardView, peer: ShardCandidate, situation: RouteSituation) -> Worth:
    """The weighted sum of the three rules, where only a need above even counts; the reason is that of the largest part.

    Where labels are known, `minimum` is subtracted, so that peers that lack nothing get only what is hard to learn.
    """
    rules = situation.rules
    need, lacking = by_need(shard, peer, situation)
    unlearnt, hard = by_confidence(shard, peer, situation)
    chance, by_chance = by_random(shard, peer, situation)
    parts = [
        (rules.need * max(0.0, need - 1.0), lacking),
        (rules.confidence * unlearnt, hard),
        (rules.random * chance, by_chance),
    ]
    return sum(worth for worth, _ in parts) - (rules.minimum if need else 0.0), max(parts)[1]


RULES: dict[str, Rule] = {"need": by_need, "confidence": by_confidence, "random": by_random, "combined": combined}
