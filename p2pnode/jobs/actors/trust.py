"""How far a laptop relies on the shared critic, and how far on a critic of its own. Pure.

Both predict the returns of every new rollout before they learn from it. The values that the policy learns with are the
mixture of both that fits the returns of the latest rollouts best (least squares). A shared critic that is of no use,
because the others' problems are unlike this one or somebody sends nonsense, has no part in it: sharing is switched off
until it predicts something again that the own critic does not.

Returns end in a prediction of what comes after the rollout, so a false prediction makes itself look right. Therefore
the shared critic may pull values away from the own critic's only as far as REACH times the errors of that one.
"""

from __future__ import annotations

from math import exp, log, sqrt

import numpy as np

from .advantage import Array

SMOOTHING = 0.8  # of what a rollout says, per rollout
PRIOR = 0.05  # weight of the opinion that both are equally good
OFF, ON = 0.1, 0.2  # parts of the shared critic below which it is not used, and above which it is used again
FAR_WORSE, WORSE = 0.5, 0.25  # logarithms of its error relative to the own critic's, likewise
REACH = 4.0
_BOUND = 2.0  # of the logarithm of two errors' ratio
_LEAST = 1e-6


class CriticTrust:
    """Compares the shared critic with the laptop's own."""

    def __init__(self, uses_shared: bool = True) -> None:
        self.shared = uses_shared  # whether the shared critic is used
        self.part = 0.5 if uses_shared else 0.0  # of its values in the mixture
        self.ratio = 0.0  # smoothed logarithm of its error relative to that of the own critic
        self.rollouts = 0
        self.spread = 0.0  # smoothed error of the own critic, by the returns that it predicts the ends of
        self._product = 0.0  # smoothed sums of least squares
        self._square = 0.0

    def begin(self, own: Array, returns: Array) -> None:
        """A new rollout: the values of the own critic, and returns that end in its own predictions."""
        self.rollouts += 1
        self.spread += self._weight * (sqrt(mean_square(returns - own)) - self.spread)

    def note(self, shared: Array, own: Array, returns: Array) -> bool:
        """Take in both critics' values and returns that end in predictions of the mixture; whether the verdict changed.

        Every rollout counts as much, however far a critic is from the returns.
        """
        shared_error, own_error = mean_square(returns - shared), mean_square(returns - own)
        apart, total = shared - own, shared_error + own_error + _LEAST
        found = 0.5 * log((shared_error + _LEAST) / (own_error + _LEAST))
        self.ratio += self._weight * (max(-_BOUND, min(_BOUND, found)) - self.ratio)
        self._product += self._weight * (float(((returns - own) * apart).mean()) / total - self._product)
        self._square += self._weight * (mean_square(apart) / total - self._square)
        best = max(0.0, min(1.0, (self._product + 0.5 * PRIOR) / (self._square + PRIOR)))
        before = self.shared
        part, worse = (OFF, FAR_WORSE) if before else (ON, WORSE)
        self.shared = best >= part and self.ratio <= worse
        self.part = best if self.shared else 0.0
        return self.shared != before

    @property
    def _weight(self) -> float:
        return max(1 - SMOOTHING, 1 / self.rollouts)

    def mixed(self, shared: Array, own: Array) -> Array:
        """The values to learn with."""
        if not self.part:
            return own
        reach = REACH * self.spread
        found: Array = own + np.float32(self.part) * np.clip(shared - own, -reach, reach).astype(np.float32)
        return found

    @property
    def reason(self) -> str:
        """The verdict in words."""
        if not self.rollouts:
            return "both critics; not compared yet"
        kind, change = "worse" if self.ratio > 0 else "better", round(100 * (exp(abs(self.ratio)) - 1))
        used = f"{round(100 * self.part)} % the shared critic" if self.shared else "its own critic"
        return f"{used}; the shared one predicts {change} % {kind}"


def mean_square(values: Array) -> float:
    return float(np.square(values, dtype=np.float64).mean())
