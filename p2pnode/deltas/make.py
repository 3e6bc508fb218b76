"""From a residual to what is sent of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..weights import MAX_UNITS, Units, blocks, to_units
from .delta import Indices, SparseDelta
from .quantise import quantise
from .select import largest

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


def make_delta(residual: Units, k: int, bits: int, weight: float) -> tuple[SparseDelta, Units]:
    """What to send of a residual, and the residual afterwards (docs/design.md, rules of the set).

    The k largest entries are quantised to levels; the residual loses the levels exactly; the wire carries the levels
    times `weight` (γ/G, and any discount) rounded to the grid, without those that round to nothing.
    """
    places = largest(residual, k)
    levels = quantise(residual[places], bits)
    after = residual.copy()
    after[places] -= levels
    return weighted(len(residual), places, levels, weight), after


def weighted(size: int, places: Indices, levels: Units, weight: float) -> SparseDelta:
    """Levels as they go onto the wire: times `weight`, on the grid, zeros left out."""
    if not 0.0 < weight < float("inf"):
        raise ValueError(f"weight {weight} is not a positive number")
    scaled = np.clip(np.rint(levels * np.float64(weight)), -MAX_UNITS, MAX_UNITS).astype(np.int32)
    there = scaled != 0
    return SparseDelta(size, places[there], scaled[there])
