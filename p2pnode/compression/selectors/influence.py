"""The influence of a weight on the loss: its gradient and its curvature, measured at two points.

All weights move at once by ±ε, each in a direction s = ±1 drawn at random. With g± the gradients at w ± ε·s,

    g ≈ (g₊ + g₋) / 2        H·s ≈ (g₊ − g₋) / 2ε        h = s ⊙ H·s,  whose mean is diag(H)   (Hutchinson 1989)

and the loss changes by |g|·|v| + ½·|h|·v² when one weight moves by v. Both are rolling averages; |g| also takes the
gradients that training computes anyway. The noise of h (other weights' share in H·s) has mean zero, so h is averaged
with its sign. The losses alone, as in SPSA, would give one number for all weights. Nothing is kept over a restart: a
few measurements bring it back.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..delta import Indices
from ..weights import Floats, norm

SHARE = 0.03  # of the local steps, for measuring
LOOK_STEPS = 4  # what one measurement costs, in local steps: two gradients, and its own arithmetic
EPSILON = 0.01  # of the weights' root mean square
SLOPE_MEMORY = 0.9  # of the rolling |g|, per gradient
CURVATURE_MEMORY = 0.7  # of the rolling h, per measurement


class LossInfluence:
    """One node's rolling averages of |g| and h. A `GradientUser`: training measures the gradients for it."""

    def __init__(self, size: int, seed: int) -> None:
        self.looks = 0
        self._followed = False
        self._size = size
        self._rng = np.random.default_rng(seed)
        self._looked_at = 0
        self._signs: npt.NDArray[np.int8] = np.zeros(0, np.int8)
        self._epsilon = 0.0
        self._slope: Floats = np.zeros(size, np.float32)
        self._curvature: Floats = np.zeros(size, np.float32)

    def due(self, steps_done: int) -> bool:
        """Whether the local steps since the last measurement pay for another."""
        return steps_done - self._looked_at >= LOOK_STEPS / SHARE

    def points(self, weights: Floats, steps_done: int) -> tuple[Floats, Floats]:
        """The two weight vectors at which to measure the gradient; `note` takes the gradients."""
        self._looked_at = steps_done
        drawn = np.frombuffer(self._rng.bytes(-(-self._size // 8)), np.uint8)
        self._signs = np.unpackbits(drawn, count=self._size).view(np.int8) * np.int8(2) - np.int8(1)
        self._epsilon = max(EPSILON * norm(weights) / self._size**0.5, 1e-6)
        move = self._signs * np.float32(self._epsilon)
        return weights + move, weights - move

    def note(self, above: Floats, below: Floats) -> None:
        """Takes the gradients at the two points, on the same batch. Gradients that are not finite are ignored."""
        slope, curvature = above + below, above - below
        if not (np.isfinite(slope.sum()) and np.isfinite(curvature.sum())):
            return
        slope *= np.float32(0.5)
        self.follow(slope)
        curvature *= self._signs
        curvature *= np.float32(0.5 / self._epsilon)
        _roll(self._curvature, curvature, CURVATURE_MEMORY if self.looks else 0.0)
        self.looks += 1

    def follow(self, gradient: Floats) -> None:
        """Takes a gradient of the training itself, so that |g| follows the training between measurements."""
        slope = np.abs(gradient)
        if np.isfinite(slope.sum()):
            _roll(self._slope, slope, SLOPE_MEMORY if self._followed else 0.0)
            self._followed = True

    def at(self, indices: Indices, change: Floats) -> Floats:
        """How much the loss changes per unit of change, for changes of these sizes, relative to the mean of `indices`.

        All ones before the first gradient, and where every gradient is 0.
        """
        influence = self._slope[indices] + np.abs(self._curvature[indices]) * np.abs(change) / 2
        mean = float(influence.mean()) if len(indices) else 0.0
        if not 0.0 < mean < float("inf"):
            return np.ones(len(indices), np.float32)
        relative: Floats = (influence / np.float32(mean)).astype(np.float32)
        return relative


def _roll(average: Floats, now: Floats, keep: float) -> None:
    """average ← keep·average + (1 − keep)·now, in place. `now` is overwritten."""
    now *= np.float32(1 - keep)
    average *= np.float32(keep)
    average += now
