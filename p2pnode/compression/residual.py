"""The residual: a round's progress is added to it, and what is sent is taken out of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np

from .delta import Indices, SparseDelta
from .quantise import quantise
from .selectors.magnitude import largest
from .weights import MAX_UNITS, Floats, Units, blocks, norm_squared, to_units

_BETA_BITS = 16


def record(residual: Units, progress: Floats, beta: float) -> Units:
    """e ← β·e + (x − s) on the grid, clipped to ±MAX_UNITS; ValueError when the progress is not finite.

    β is rounded to a multiple of 2⁻¹⁶ and the product is truncated towards zero in integers. So the result is the same
    on every machine, and what is never sent fades to zero.
    """
    if not 0.0 <= beta <= 1.0:
        raise ValueError(f"beta {beta} is not between 0 and 1")
    if residual.shape != progress.shape:
        raise ValueError(f"the residual has shape {residual.shape} and the progress {progress.shape}")
    factor = round(beta * (1 << _BETA_BITS))
    after = np.empty_like(residual)
    for block in blocks(len(residual)):  # so that the 64-bit intermediates stay small
        kept = residual[block].astype(np.int64) * factor
        kept += (kept < 0) * ((1 << _BETA_BITS) - 1)  # since an arithmetic shift rounds down
        kept >>= _BETA_BITS
        kept += to_units(progress[block])
        after[block] = np.clip(kept, -MAX_UNITS, MAX_UNITS)
    return after


@dataclass(frozen=True)
class Cut:
    """Levels at chosen indices that are taken out of a residual. Levels + what `leave` leaves = what was there."""

    size: int
    indices: Indices
    levels: Units

    def delta(self, weight: float) -> SparseDelta:
        """What is sent of it, with this weight."""
        return weighted(self.size, self.indices, self.levels, weight)

    def leave(self, residual: Units) -> None:
        """Takes the levels out of the residual, in place."""
        np.subtract.at(residual, self.indices, self.levels)


def take_levels(residual: Units, indices: Indices, bits: int) -> Cut:
    """The residual at these indices, quantised to levels."""
    return Cut(len(residual), indices, quantise(residual[indices], bits))


def make_delta(residual: Units, k: int, bits: int, weight: float) -> tuple[SparseDelta, Units]:
    """The delta of a residual's k largest coordinates, and the residual afterwards.

    The coordinates are quantised to levels, and the residual loses these levels exactly. The delta carries the levels
    times `weight` (γ/G and any discount), rounded to the grid, without those that become zero.
    """
    taken = take_levels(residual, largest(residual, k), bits)
    after = residual.copy()
    taken.leave(after)
    return taken.delta(weight), after


def weighted(size: int, indices: Indices, levels: Units, weight: float) -> SparseDelta:
    """Levels as a delta: times `weight`, rounded to the grid, without zeros."""
    if not 0.0 < weight < float("inf"):
        raise ValueError(f"weight {weight} is not a positive number")
    scaled = np.clip(np.rint(levels * np.float64(weight)), -MAX_UNITS, MAX_UNITS).astype(np.int32)
    there = scaled != 0
    return SparseDelta(size, indices[there], scaled[there])


def within(delta: SparseDelta, bound: int) -> SparseDelta:
    """The delta, scaled down if its norm reaches `bound` units."""
    norm = isqrt(norm_squared(delta.values))
    return delta if norm < bound else weighted(delta.size, delta.indices, np.array(delta.values), 0.99 * bound / norm)
