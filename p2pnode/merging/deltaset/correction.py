"""Correction: what becomes of local steps that were done while entries of others arrived (docs/architecture.md).

At a step boundary, with x the weights in training, s where they started and A the circle's weights as they are now:

    ‖x − A‖ ≤ τ · its running median    x ← A + (x − s), s ← A      the steps are kept on top of what arrived
    otherwise                           e += x − s, x ← A, s ← A    the steps go to the residual e
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import isfinite, sqrt

import numpy as np

from ...compression.weights import MAX_UNITS, Floats, Units, to_units

WINDOW = 25  # distances of which the median is taken

Blocks = Callable[[], Iterator[tuple[slice, Floats]]]  # A, block by block


class Correction:
    """Counts corrections of both kinds and keeps the distances by which they are decided."""

    def __init__(self, tau: float) -> None:
        self.kept = 0
        self.restarted = 0
        self._tau = tau
        self._distances: deque[float] = deque(maxlen=WINDOW)

    def correct(self, start: Floats, x: Floats, residual: Units, weights: Blocks) -> None:
        """Let `weights` in. `start`, `x` and `residual` change in place, without another vector.

        ValueError, and nothing changed, when `x` has values that are not finite.
        """
        if self._keeps(_distance(x, weights())):
            self.kept += 1
            for block, now in weights():
                x[block] += now - start[block]
                start[block] = now
        else:
            self.restarted += 1
            for block, now in weights():
                unsent = residual[block].astype(np.int64) + to_units(x[block] - start[block])
                residual[block] = np.clip(unsent, -MAX_UNITS, MAX_UNITS)
                x[block] = start[block] = now

    def _keeps(self, distance: float) -> bool:
        """Whether the steps are kept. Without a distance to compare with, they are."""
        if not isfinite(distance):
            raise ValueError("the weights in training are not finite numbers")
        near = not self._distances or distance <= self._tau * float(np.median(self._distances))
        self._distances.append(distance)
        return near


def _distance(x: Floats, weights: Iterator[tuple[slice, Floats]]) -> float:
    """‖x − A‖."""
    squares = 0.0
    for block, now in weights:
        apart = x[block] - now
        squares += float(np.dot(apart, apart))
    return sqrt(squares)
