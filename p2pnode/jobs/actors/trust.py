"""Whether a laptop uses the shared critic or a critic of its own. Pure.

Both predict the returns of every new rollout before they learn from it. A shared critic that predicts them worse for
some rollouts, because the others' problems are unlike this one or somebody sends nonsense, is not used until it is as
good again. So sharing can cost a laptop a few rollouts, and not more.
"""

from __future__ import annotations

from math import log

import numpy as np

from .advantage import Array

SMOOTHING = 0.8  # of the logarithm of the two errors' ratio, per rollout
WORSE = 0.30  # smoothed logarithm above which the shared critic is not used any more
AS_GOOD = 0.0  # and below which it is used again
PATIENCE = 4  # rollouts before the first verdict
_BOUND = 2.0  # one rollout cannot say more than this
_LEAST = 1e-3


class CriticTrust:
    """Compares the shared critic with the laptop's own."""

    def __init__(self) -> None:
        self.shared = True  # whether the shared critic is used
        self.ratio = 0.0  # smoothed logarithm of its error relative to that of the own critic
        self.rollouts = 0

    def note(self, shared_error: float, own_error: float) -> bool:
        """Take in the errors on one rollout; returns whether the verdict has changed."""
        found = log(max(_LEAST, shared_error) / max(_LEAST, own_error))
        bounded = max(-_BOUND, min(_BOUND, found)) if np.isfinite(found) else _BOUND
        self.rollouts += 1
        weight = max(1 - SMOOTHING, 1 / self.rollouts)
        self.ratio += weight * (bounded - self.ratio)
        before = self.shared
        if self.rollouts >= PATIENCE:
            self.shared = self.ratio <= (WORSE if self.shared else AS_GOOD)
        return self.shared != before

    @property
    def reason(self) -> str:
        """The verdict in words."""
        change = round(100 * (np.exp(abs(self.ratio)) - 1))
        if self.rollouts < PATIENCE:
            return "the shared critic; not compared yet"
        kind = "worse" if self.ratio > 0 else "better"
        return f"{'the shared' if self.shared else 'its own'} critic; the shared one predicts {change} % {kind}"


def prediction_error(values: Array, returns: Array) -> float:
    """Mean absolute distance of values from the returns that came of them; infinite when values are not finite."""
    if not np.isfinite(values).all():
        return float("inf")
    return float(np.abs(values - returns).mean())
