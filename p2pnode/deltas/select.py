"""Which coordinates to send: those of largest magnitude (docs/design.md: other measures of importance did worse)."""

from __future__ import annotations

import numpy as np

from ..weights import Units
from .delta import Indices


def largest(units: Units, k: int) -> Indices:
    """The places of the k largest magnitudes, increasing; among equals the lower index goes first.

    Exactly k of them, or as many as differ from zero: a coordinate that did not change is never sent.
    """
    if k <= 0 or not len(units):
        return np.empty(0, np.uint32)
    changed = units[units != 0]  # a residual has many zeros, and numpy's partition is 50 times slower on ties
    if k >= len(changed):
        return np.flatnonzero(units).astype(np.uint32)
    magnitudes = np.abs(changed, out=changed).view(np.uint32)  # unsigned, so that the most negative counts as large
    magnitudes.partition(len(changed) - k)
    threshold = int(magnitudes[len(changed) - k])
    chosen = np.flatnonzero((units >= threshold) | (units <= -threshold)).astype(np.uint32)
    surplus = len(chosen) - k
    if surplus:
        ties = np.flatnonzero(np.abs(units[chosen]).view(np.uint32) == threshold)
        chosen = np.delete(chosen, ties[len(ties) - surplus :])
    return chosen
