"""How long a round is: the number of local steps is random, with a mean that makes rounds take about equally long."""

from __future__ import annotations

import math
import random

MAX_MEAN = 10_000.0
_NORMAL_ABOVE = 500.0  # a mean above which exp(−mean) gets too small; a normal distribution is as good there


def mean_steps(speed: float, round_seconds: float, cap: int) -> float:
    """The mean number of local steps of a round: what `speed` (steps per second) does in `round_seconds`, 1..cap."""
    if not math.isfinite(speed) or speed <= 0:
        return 1.0
    return min(max(1.0, speed * round_seconds), float(cap), MAX_MEAN)


def shortened(mean: float, maximum: float) -> float:
    """The mean reduced to `maximum`, which the merge policy wants, but at least to an eighth of it.

    So exchanges never become more than eight times as frequent as planned.
    """
    return max(min(mean, maximum), mean / 8, 1.0)


def local_steps(mean: float, rng: random.Random, cap: int) -> int:
    """K ~ 1 + Poisson(mean − 1), at most `cap`. It always draws exactly one number from `rng`."""
    return min(cap, 1 + poisson(max(0.0, mean - 1.0), rng.random()))


def poisson(mean: float, u: float) -> int:
    """The smallest n with P(Poisson(mean) ≤ n) > u, so that equal `u` gives nearly equal numbers."""
    if mean > _NORMAL_ABOVE:
        return max(0, round(mean + math.sqrt(mean) * _normal_quantile(u)))
    n, term = 0, math.exp(-mean)
    total = term
    while total <= u and term > 0.0:
        n += 1
        term *= mean / n
        total += term
        if n > mean and term < 1e-18:  # the rest of the sum is below the precision of a float
            break
    return n


def _normal_quantile(u: float) -> float:
    """The quantile by Abramowitz and Stegun 26.2.23; the error is below 5e-4."""
    p = min(max(u, 1e-12), 1.0 - 1e-12)
    t = math.sqrt(-2.0 * math.log(min(p, 1.0 - p)))
    size = t - (2.515517 + 0.802853 * t + 0.010328 * t * t) / (1.0 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t**3)
    return size if p > 0.5 else -size
