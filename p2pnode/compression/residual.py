"""From a residual to what is sent of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np
import numpy.typing as npt

from .delta import Indices, SparseDelta
from .quantise import quantise
from .selectors.magnitude import largest
from .weights import MAX_UNITS, Units, blocks, norm_squared, to_units

_BETA_BITS = 16


def record(residual: Units, progress: npt.NDArray[np.float32], beta: float) -> Units:
    """e ← β·e + (x − s) on the grid, clipped to ±MAX_UNITS; ValueError when the progress is not finite.

    β is taken as a multiple of 2⁻¹⁶ and the product cut towards zero in integers: the same everywhere, and what
    is never sent fades to nothing.
    """
    if not 0.0 <= beta <= 1.0:
        raise ValueError(f"beta {beta} is not between 0 and 1")
    if residual.shape != progress.shape:
        raise ValueError(f"a residual of shape {residual.shape} and progress of shape {progress.shape}")
    factor = round(beta * (1 << _BETA_BITS))
    after = np.empty_like(residual)
    for block in blocks(len(residual)):  # so that the wide intermediates stay small
        kept = residual[block].astype(np.int64) * factor
        kept += (kept < 0) * ((1 << _BETA_BITS) - 1)  # an arithmetic shift cuts downwards
        kept >>= _BETA_BITS
        kept += to_units(progress[block])
        after[block] = np.clip(kept, -MAX_UNITS, MAX_UNITS)
    return after


@dataclass(frozen=True)
class Cut:
    """What is taken out of a residual: levels at chosen places. Law: levels + what `leave` leaves = what was there."""

    size: int
    places: Indices
    levels: Units

    def delta(self, weight: float) -> SparseDelta:
        """What goes onto the wire of it."""
        return weighted(self.size, self.places, self.levels, weight)

    def leave(self, residual: Units) -> None:
        """Take the levels out of the residual, in place."""
        np.subtract.at(residual, self.places, self.levels)


def take_levels(residual: Units, places: Indices, bits: int) -> Cut:
    """Levels for the residual at these places."""
    return Cut(len(residual), places, quantise(residual[places], bits))


def make_delta(residual: Units, k: int, bits: int, weight: float) -> tuple[SparseDelta, Units]:
    """What to send of a residual, and the residual afterwards (docs/architecture.md, rules of the set).

    The k largest entries are quantised to levels; the residual loses the levels exactly; the wire carries the levels
    times `weight` (γ/G, and any discount) rounded to the grid, without those that round to nothing.
    """
    taken = take_levels(residual, largest(residual, k), bits)
    after = residual.copy()
    taken.leave(after)
    return taken.delta(weight), after


def weighted(size: int, places: Indices, levels: Units, weight: float) -> SparseDelta:
    """Levels as they go onto the wire: times `weight`, on the grid, without zeros."""
    if not 0.0 < weight < float("inf"):
        raise ValueError(f"weight {weight} is not a positive number")
    scaled = np.clip(np.rint(levels * np.float64(weight)), -MAX_UNITS, MAX_UNITS).astype(np.int32)
    there = scaled != 0
    return SparseDelta(size, places[there], scaled[there])


def within(delta: SparseDelta, bound: int) -> SparseDelta:
    """The delta, made smaller where its norm would reach `bound` units."""
    norm = isqrt(norm_squared(delta.values))
    return delta if norm < bound else weighted(delta.size, delta.indices, np.array(delta.values), 0.99 * bound / norm)
