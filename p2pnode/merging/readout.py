"""The read-out: a running mean of the weights, which a node evaluates and exports. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

import numpy as np

from ..compression.weights import Floats

KEPT = 0.8  # share of the read-out that stays at a merge


def mixed(readout: Floats, weights: Floats) -> Floats:
    """A read-out moved towards weights, as a new vector."""
    after: Floats = np.float32(KEPT) * readout + np.float32(1 - KEPT) * weights
    return after


def move_readout(readout: Floats, weights: Iterable[tuple[slice, Floats]]) -> float:
    """Move a read-out, in place, towards weights that come block by block; returns how far, relative to its norm."""
    moved = size = 0.0
    for block, now in weights:
        part = readout[block]
        step = np.float32(1 - KEPT) * (now - part)
        part += step
        moved += float(step @ step)
        size += float(part @ part)
    return sqrt(moved / max(size, 1e-24))
