"""Chooses the partners of a round, with reasons: mostly inside the circle, at times across a bridge, at times anyone.

Every peer that may be chosen at all has a chance in every round. So communities do not become islands, and many peers
with lying fingerprints cannot keep an honest node to themselves forever.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..merging.values import setting
from ..wire.ids import PeerId
from .communities import Communities

NEAR_SECONDS = 0.1  # the round trip at which a link counts half
FAST_BYTES = 100_000.0  # per second: the rate at which a link counts half


@dataclass(frozen=True)
class Candidate:
    """What is known about a possible partner."""

    peer: PeerId
    met: int | None = None  # round of the last exchange with it; None: never
    latency: float | None = None  # seconds a small call takes
    rate: float | None = None  # bytes per second of large calls
    faults: int = 0
    worth: float = 1.0  # share of recent exchanges with it that succeeded
    similarity: float | None = None
    stale: bool = False  # its announcement has expired, it left, or it does not answer
    banned: bool = False


@dataclass(frozen=True)
class PartnerSettings:
    """How partners are weighed. Weights are exponents: 0 ignores a factor."""

    partners: int = 3
    explore: float = 0.15  # chance per round that one partner is drawn from all peers
    patience: float = 40.0  # rounds without an exchange after which a peer counts double
    fairness: float = 1.0
    link: float = 1.0
    reputation: float = 1.0
    similarity: float = 0.0  # above 0 similar members are preferred, below 0 dissimilar ones


RANGES: Mapping[str, tuple[float, float]] = {  # what a run may set, whatever its policy
    "explore": (0.0, 1.0),
    "patience": (1.0, 1e6),
    "fairness": (0.0, 10.0),
    "link": (0.0, 10.0),
    "reputation": (0.0, 10.0),
    "similarity": (-10.0, 10.0),
}


def partner_settings(settings: Mapping[str, float]) -> PartnerSettings:
    """The settings of a run that concern partners; ValueError for a number out of range."""
    given = {name: setting(settings, name, 0.0, *bounds) for name, bounds in RANGES.items() if name in settings}
    return PartnerSettings(**given)  # type: ignore[arg-type]  # none of them is `partners`


def without_partner_settings(settings: Mapping[str, float]) -> dict[str, float]:
    """The other settings, which belong to the policy."""
    return {name: value for name, value in settings.items() if name not in RANGES}


@dataclass(frozen=True)
class PartnerChoice:
    """A partner and why it was chosen; `bridge` means that it is of another circle."""

    peer: PeerId
    reason: str
    bridge: bool = False


@dataclass(frozen=True)
class Home:
    """This node, the other members of its circle, and how often it looks for a partner outside."""

    me: PeerId
    members: frozenset[PeerId]
    bridge_rate: float


def choose_partners(
    table: Iterable[Candidate],
    communities: Communities,
    now: int,
    rng: random.Random,
    home: Home,
    settings: PartnerSettings = PartnerSettings(),
) -> list[PartnerChoice]:
    """Up to three partners for round `now`, all different; never this node, a banned or a stale peer."""
    able = {each.peer: each for each in table if each.peer != home.me and not each.stale and not each.banned}
    free = [able[peer] for peer in sorted(able)]
    chosen: list[PartnerChoice] = []

    def choose(pool: Sequence[Candidate], weights: Sequence[float], reason: str = "") -> None:
        picked = rng.choices(pool, weights)[0]
        bridge = picked.peer not in home.members
        chosen.append(PartnerChoice(picked.peer, reason or _reason(picked, communities, home, now, settings), bridge))
        free.remove(picked)

    outside = [each for each in free if each.peer not in home.members]
    if outside and rng.random() < home.bridge_rate:
        choose(outside, [_weight(each, now, settings) * _nearness(each, communities, home) for each in outside])
    if free and rng.random() < settings.explore:
        choose(free, [1.0] * len(free), "by chance among all: fingerprints do not decide alone")
    while len(chosen) < settings.partners:
        pool = [each for each in free if each.peer in home.members]
        if not pool:
            break
        choose(pool, [_weight(each, now, settings) * _preference(each, settings) for each in pool])
    if not chosen and free:
        choose(free, [_weight(each, now, settings) * _nearness(each, communities, home) for each in free])
    return chosen[: settings.partners]


def _weight(each: Candidate, now: int, settings: PartnerSettings) -> float:
    """How much speaks for a peer: long not met, well connected, well behaved, reliable. Always above zero."""
    waited = 1 + _waited(each, now, settings) / settings.patience
    behaved = 1 / (1 + max(0, each.faults))
    return (
        math.pow(waited, settings.fairness)
        * math.pow(_link(each), settings.link)
        * math.pow(behaved, settings.reputation)
        * each.worth
    )


def _waited(each: Candidate, now: int, settings: PartnerSettings) -> float:
    return settings.patience if each.met is None else min(max(0, now - each.met), 10 * settings.patience)


def _link(each: Candidate) -> float:
    """The quality of a link: 1 for a perfect one; an unknown latency or rate counts half."""
    near = 0.5 if each.latency is None else NEAR_SECONDS / (NEAR_SECONDS + max(0.0, each.latency))
    fast = 0.5 if each.rate is None else (each.rate + 1) / (each.rate + 1 + FAST_BYTES)
    return near * fast


def _nearness(each: Candidate, communities: Communities, home: Home) -> float:
    """The more similar two peers are in the tree, the larger; peers that are not in the view count as farthest."""
    tree = communities.dendrogram
    height = tree.height(home.me, each.peer)
    return math.exp(-1.0 if height is None or tree.top == 0 else -height / tree.top)


def _preference(each: Candidate, settings: PartnerSettings) -> float:
    return math.pow(max(each.similarity or 0.0, 0.01), settings.similarity)


def _reason(each: Candidate, communities: Communities, home: Home, now: int, settings: PartnerSettings) -> str:
    if each.peer not in home.members:
        community, own = communities.of.get(each.peer), communities.of.get(home.me)
        height = communities.dendrogram.height(home.me, each.peer)
        where = "a peer of unknown community" if community is None else "another community"
        where = "another circle of the same community" if community is not None and community == own else where
        return f"bridge to {where}" + ("" if height is None else f", models join at distance {height:.3f}")
    if each.met is None:
        return "in the circle, no exchange yet"
    waited = now - each.met
    if waited >= settings.patience:
        return f"no exchange for {waited} rounds"
    if settings.similarity and each.similarity is not None:
        return f"in the circle, similarity {each.similarity:.3f}"
    if each.rate is not None and each.rate >= FAST_BYTES:
        return f"in the circle, {each.rate / 1e3:.0f} kB per second"
    if each.latency is not None and each.latency <= NEAR_SECONDS:
        return f"in the circle, answers in {each.latency * 1e3:.0f} ms"
    return f"in the circle, last exchange {waited} rounds ago"
