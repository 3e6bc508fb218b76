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
    magnitudes = np.abs(units).view(np.uint32)  # as unsigned, so that the most negative value counts as large
    if k >= len(units):
        return np.flatnonzero(magnitudes).astype(np.uint32)
    threshold = np.partition(magnitudes, len(units) - k)[len(units) - k]
    if threshold == 0:
        return np.flatnonzero(magnitudes).astype(np.uint32)
    chosen = np.flatnonzero(magnitudes >= threshold)
    surplus = len(chosen) - k
    if surplus:
        ties = np.flatnonzero(magnitudes[chosen] == threshold)
        chosen = np.delete(chosen, ties[len(ties) - surplus :])
    return chosen.astype(np.uint32)
