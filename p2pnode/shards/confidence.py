"""Confidence per datum: what a model gives to the true label, gathered while it trains and smoothed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .shard import SampleNumbers

SMOOTHING = 0.5  # share of the newest value


Shares = NDArray[np.float32]


class Confidences:
    """The smoothed confidence of each of `count` samples; NaN where none was seen yet."""

    def __init__(self, count: int, smoothing: float = SMOOTHING) -> None:
        self.values: Shares = np.full(count, np.nan, np.float32)
        self._smoothing = np.float32(smoothing)

    def note(self, indices: SampleNumbers, shares: Shares) -> None:
        """Take in confidences; what is not finite is passed over, and of an index several times the last counts."""
        good = np.isfinite(shares)
        indices, shares = indices[good], np.clip(shares[good], 0.0, 1.0)
        times = np.bincount(indices, minlength=len(self.values))
        seen = np.flatnonzero(times)
        last = np.empty(len(self.values), np.float32)
        last[indices] = shares  # of an index several times, numpy keeps the last
        new, old = last[seen], self.values[seen]
        self.values[seen] = np.where(np.isnan(old), new, new + (1 - self._smoothing) ** times[seen] * (old - new))

    def mean(self, indices: SampleNumbers) -> float:
        """Of some samples, such as a shard's; NaN when none of them was seen."""
        seen = self.values[indices]
        seen = seen[~np.isnan(seen)]
        return float(seen.mean()) if len(seen) else float("nan")
