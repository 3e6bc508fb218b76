"""Confidence per datum: what a model gives to the true label, gathered while it trains and smoothed."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

SMOOTHING = 0.5  # share of the newest value

Indices = NDArray[np.int64]
Shares = NDArray[np.float32]


def label_confidence(outputs: Tensor, labels: Tensor) -> Tensor:
    """The probability of each sample's true label; of sequences (B, T, C), the mean likelihood of a token.

    Takes the outputs a training step has computed anyway: no extra pass through the model.
    """
    scores = outputs.detach().reshape(-1, outputs.shape[-1])
    losses = functional.cross_entropy(scores, labels.reshape(-1), reduction="none")
    return torch.exp(-losses.reshape(len(labels), -1).mean(1))


class Confidences:
    """The smoothed confidence of each of `count` samples; NaN where none was seen yet."""

    def __init__(self, count: int, smoothing: float = SMOOTHING) -> None:
        self.values: Shares = np.full(count, np.nan, np.float32)
        self._smoothing = np.float32(smoothing)
        self._fresh = np.zeros(count, np.bool_)

    def note(self, indices: Indices, shares: Shares) -> None:
        """Take in confidences; what is not finite is passed over, and of an index several times the last counts."""
        good = np.isfinite(shares)
        indices, shares = indices[good], np.clip(shares[good], 0.0, 1.0)
        times = np.bincount(indices, minlength=len(self.values))
        seen = np.flatnonzero(times)
        last = np.empty(len(self.values), np.float32)
        last[indices] = shares  # of an index several times, numpy keeps the last
        new, old = last[seen], self.values[seen]
        self.values[seen] = np.where(np.isnan(old), new, new + (1 - self._smoothing) ** times[seen] * (old - new))
        self._fresh[seen] = True

    def take_fresh(self) -> Indices:
        """The samples seen since this was asked last."""
        fresh = np.flatnonzero(self._fresh)
        self._fresh[fresh] = False
        return fresh

    def usual(self) -> float:
        """The median over all that was seen: what this model has learnt in general; 0 when it saw nothing."""
        seen = self.values[~np.isnan(self.values)]
        return float(np.median(seen)) if len(seen) else 0.0

    def mean(self, indices: Indices) -> float:
        """Of some samples, such as a shard's; NaN when none of them was seen."""
        seen = self.values[indices]
        seen = seen[~np.isnan(seen)]
        return float(seen.mean()) if len(seen) else float("nan")
