"""How long a round is: the number of local steps, drawn so that fast and slow nodes publish at similar intervals."""

from __future__ import annotations

import math
import random

MAX_LAMBDA = 10_000.0
_NORMAL_ABOVE = 500.0  # where exp(−mean) nears the smallest float, a normal draw is as good


def lam_for(speed: float, round_seconds: float, cap: int) -> float:
    """The mean number of local steps of a round: what `speed` (steps a second) does in `round_seconds`, 1..cap."""
    if not math.isfinite(speed) or speed <= 0:
        return 1.0
    return min(max(1.0, speed * round_seconds), float(cap), MAX_LAMBDA)


def shortened(lam: float, most: float) -> float:
    """`lam` where a merge policy wants rounds of at most `most` steps on average; an eighth of it is left, so that
    exchanges never become more than eight times as frequent as planned."""
    return max(min(lam, most), lam / 8, 1.0)


def local_steps(lam: float, rng: random.Random, cap: int) -> int:
    """K ~ 1 + Poisson(lam − 1), at most `cap`. One number is drawn from `rng` whatever comes out."""
    return min(cap, 1 + poisson(max(0.0, lam - 1.0), rng.random()))


def poisson(mean: float, u: float) -> int:
    """The smallest n with P(Poisson(mean) ≤ n) > u: inversion, so equal `u` gives nearly equal numbers."""
    if mean > _NORMAL_ABOVE:
        return max(0, round(mean + math.sqrt(mean) * _normal_quantile(u)))
    n, term = 0, math.exp(-mean)
    total = term
    while total <= u and term > 0.0:
        n += 1
        term *= mean / n
        total += term
        if n > mean and term < 1e-18:  # the rest of the sum is below what a float can tell
            break
    return n


def _normal_quantile(u: float) -> float:
    """Abramowitz and Stegun 26.2.23; the error is below 5e-4."""
    p = min(max(u, 1e-12), 1.0 - 1e-12)
    t = math.sqrt(-2.0 * math.log(min(p, 1.0 - p)))
    size = t - (2.515517 + 0.802853 * t + 0.010328 * t * t) / (1.0 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t**3)
    return size if p > 0.5 else -size
