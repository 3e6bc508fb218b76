"""The weights of the rules of routes, learnt online: a bandit over a few mixtures, each of them safe. Pure.

A mixture is paid what its shipments did: the confidence a receiver's model gained in its first visit, per byte. The
next shipment goes by the mixture with the best discounted mean, plus a bonus for those seldom tried (UCB). In every
mixture low confidence counts and label need counts, so nothing a peer reports can turn either off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from p2pnode.shards.route import RouteRules

MIXTURES = ((1.0, 0.3), (1.0, 0.1), (1.0, 1.0), (0.3, 0.3))  # weights of need and of confidence; the first is the usual
KEPT = 0.98  # of what earlier shipments count, at each new one
BONUS = 0.5  # in units of the mean pay


@dataclass(frozen=True)
class RouteTuning:
    """What each mixture was paid in all, and for how many shipments; both discounted."""

    paid: tuple[float, ...] = (0.0,) * len(MIXTURES)
    tried: tuple[float, ...] = (0.0,) * len(MIXTURES)


def choose_mixture(tuning: RouteTuning) -> int:
    """The first one that was not tried yet, or the most promising."""
    if 0.0 in tuning.tried:
        return tuning.tried.index(0.0)
    total = sum(tuning.tried)
    unit = max(1e-12, sum(tuning.paid) / total)
    worths = [
        paid / tried + BONUS * unit * math.sqrt(math.log(1 + total) / tried)
        for paid, tried in zip(tuning.paid, tuning.tried, strict=True)
    ]
    return worths.index(max(worths))


def with_mixture(rules: RouteRules, mixture: int) -> RouteRules:
    need, confidence = MIXTURES[mixture]
    return replace(rules, need=need, confidence=confidence)


def learnt(tuning: RouteTuning, mixture: int, before: float, after: float, size_bytes: int) -> RouteTuning:
    """The tuning after a receiver reported its first visit of a shard it was sent. A reported gain counts as 0 to 1."""
    gain = min(1.0, max(0.0, after - before)) if math.isfinite(after - before) else 0.0
    return RouteTuning(
        _added(tuning.paid, mixture, gain / max(1, size_bytes)),
        _added(tuning.tried, mixture, 1.0),
    )


def _added(numbers: Sequence[float], place: int, amount: float) -> tuple[float, ...]:
    return tuple(KEPT * number + (amount if at == place else 0.0) for at, number in enumerate(numbers))
