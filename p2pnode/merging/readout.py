"""The read-out: a running mean of the weights, which a node evaluates and exports. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

import numpy as np

from ..compression.weights import Floats, dot

KEPT = 0.8  # share of the read-out that stays at a merge
ROUNDS_SHARE = 8.0  # over the number of rounds: the share that the latest weights have in a run without an end
LEAST_SHARE = 0.02


def share_of_latest(rounds: int, rate: float) -> float:
    """The share that the latest weights get in the read-out of a node that has done `rounds`.

    While the learning rate is constant the read-out averages over the last eighth of all rounds, which takes out more
    noise the longer it lasts. Where the rate falls towards a planned end (`rate` is what is left of it), there is less
    and less noise, and an average would only lag behind. The first rounds count as they are: weights change most then.
    """
    return min(1.0, max(ROUNDS_SHARE / max(1, rounds), LEAST_SHARE, 1.0 - rate))


def mixed(readout: Floats, weights: Floats) -> Floats:
    """A read-out moved towards weights, as a new vector."""
    after: Floats = np.float32(KEPT) * readout + np.float32(1 - KEPT) * weights
    return after


def move_readout(readout: Floats, weights: Iterable[tuple[slice, Floats]], share: float) -> float:
    """Move a read-out, in place, by `share` of the way towards weights that come block by block.

    Returns how far the weights are away, relative to its norm and times 1 − KEPT, so that what counts as converged does
    not depend on the share.
    """
    moved = size = 0.0
    for block, now in weights:
        part = readout[block]
        apart = now - part
        part += np.float32(share) * apart
        moved += dot(apart, apart)
        size += dot(part, part)
    return (1 - KEPT) * sqrt(moved / max(size, 1e-24))
