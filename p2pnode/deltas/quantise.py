"""Few levels for many values: symmetric levels per chunk, on the grid.

Law: level + what is left = what was there, exactly, in units. Up to 4 bits the magnitudes' levels are placed by
Lloyd's iteration (Lloyd 1982; Max 1960) on the chunk itself, which for the tail that top-k keeps costs fewer levels
than even spacing; 8 bits are evenly spaced. There is one sign bit and no level for zero unless the data put one there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..weights import Units

BITS = (2, 3, 4, 8)
CHUNK = 8192  # values that share levels; the codec sends levels once per chunk
_ITERATIONS = 12

Levels = npt.NDArray[np.float64]


def quantise(values: Units, bits: int) -> Units:
    """Each value's level. ValueError for a number of bits that is not offered."""
    if bits not in BITS:
        raise ValueError(f"{bits} bits; one of {BITS} is possible")
    levels = np.empty_like(values)
    for start in range(0, len(values), CHUNK):
        chunk = slice(start, start + CHUNK)
        levels[chunk] = _quantise_chunk(values[chunk], 1 << (bits - 1))
    return levels


def _quantise_chunk(values: Units, count: int) -> Units:
    magnitudes = np.abs(values)
    ordered = np.sort(magnitudes)
    levels = _even(ordered, count) if count > 8 else _lloyd(ordered, count)
    nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, magnitudes)
    on_grid: Units = np.rint(levels).astype(np.int32)[nearest]
    return np.where(values < 0, -on_grid, on_grid)


def _even(ordered: Units, count: int) -> Levels:
    """Centres of `count` equal cells between the smallest and the largest magnitude."""
    low, high = int(ordered[0]), int(ordered[-1])
    return low + (np.arange(count, dtype=np.float64) + 0.5) * ((high - low) / count)


def _lloyd(ordered: Units, count: int) -> Levels:
    """Levels that are the means of the magnitudes nearest to them, from evenly filled cells onwards."""
    sums = np.concatenate(([0], np.cumsum(ordered, dtype=np.int64)))
    cells = np.linspace(0, len(ordered), count + 1).astype(np.int64)
    levels = np.full(count, float(ordered[0]))
    for _ in range(_ITERATIONS):
        filled = np.diff(cells)
        levels = np.where(filled > 0, np.diff(sums[cells]) / np.maximum(filled, 1), levels)
        levels.sort()
        borders = np.searchsorted(ordered, (levels[1:] + levels[:-1]) / 2)
        moved = np.concatenate(([0], borders, [len(ordered)]))
        if np.array_equal(moved, cells):
            break
        cells = moved
    return levels
