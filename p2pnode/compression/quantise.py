"""Replaces many different values by few levels: symmetric levels for each chunk of values, on the grid.

Level + remainder = value, exactly, in units. The best levels lie about as dense as the cube root of the density f of
the magnitudes (Panter and Dite 1951). So the magnitudes are first divided into cells of equal ∫ f^⅓, a few for each
level, with f taken from points of the sorted magnitudes. Dynamic programming then finds the best way to join cells into
levels. The error is within a few per cent of that of the best levels (Lloyd 1982; Max 1960). Lloyd's iteration from
evenly filled cells was caught by single large values: up to 15 times the error on residuals of real training. There is
one sign bit, and a level for zero only if the data have one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .values import CHUNK, WIDE_CHUNK
from .weights import Doubles, Units

BITS = (2, 3, 4, 8)
_FEW = 8  # levels that are joined from cells
_CELLS = 32
_POINTS = 32  # for each cell; the density counts as constant between them
_TAIL = 64  # the largest values are a point each
_CELLS_A_LEVEL, _WIDEST = 3, 12  # with many levels: cells for each on average, and at most
_EVENINGS = 4  # passes that take cells away from lone values, which cannot fill them
_AT_ONCE = 1 << 18  # values handled at a time

Borders = npt.NDArray[np.int64]  # of cells: positions in the sorted magnitudes, a row for each chunk


def quantise(values: Units, bits: int) -> Units:
    """Each value's nearest level; ValueError for a number of bits that is not offered."""
    if bits not in BITS:
        raise ValueError(f"{bits} bits; one of {BITS} is possible")
    count = 1 << (bits - 1)
    chunk = CHUNK if count <= _FEW else WIDE_CHUNK
    levels = np.empty_like(values)
    whole = len(values) // chunk * chunk
    for start in range(0, whole, _AT_ONCE):
        block = slice(start, min(start + _AT_ONCE, whole))
        levels[block] = _quantised(values[block].reshape(-1, chunk), count).reshape(-1)
    if whole < len(values):
        levels[whole:] = _quantised(values[whole:].reshape(1, -1), count)[0]
    return levels


def _quantised(values: Units, count: int) -> Units:
    """The same for rows of values, each a chunk with its own levels."""
    magnitudes = np.abs(values)
    ordered = np.sort(magnitudes, axis=1)
    levels = np.rint(_fitted(ordered, count)).astype(np.int32)
    codes = _above(magnitudes, levels[:, :-1] + np.diff(levels, axis=1) // 2)
    on_grid = np.empty(values.shape, np.int32)
    for row in range(len(values)):
        levels[row].take(codes[row], out=on_grid[row], mode="clip")
    on_grid *= values >> 31 | 1  # −1 for the negative
    return on_grid


def _above(magnitudes: Units, borders: Units) -> npt.NDArray[np.uint8]:
    """Returns for each magnitude the number of its row's borders that it exceeds."""
    codes = np.zeros(magnitudes.shape, np.uint8)
    if borders.shape[1] < _FEW:
        for border in borders.T:
            codes += magnitudes > border[:, None]
    else:
        for row in range(len(codes)):
            codes[row] = np.searchsorted(borders[row], magnitudes[row])
    return codes


# ---- levels from sorted magnitudes; every row is a chunk ----


def _fitted(ordered: Units, count: int) -> Doubles:
    """The `count` levels of each row."""
    few = count <= _FEW
    cells = _cells(ordered, _CELLS if few else _CELLS_A_LEVEL * count)
    excess = _flat_excess(ordered)
    sums = _cell_sums(excess, cells)
    excess *= excess
    return _means(ordered, *_joined(cells, sums, _cell_sums(excess, cells), count, _CELLS if few else _WIDEST))


def _flat_excess(ordered: Units) -> Doubles:
    """All rows in one vector, each less its smallest value, with a zero at the end."""
    flat = np.zeros(ordered.size + 1)
    np.subtract(ordered, ordered[:, :1], out=flat[:-1].reshape(ordered.shape), dtype=np.float64)
    return flat


def _cell_sums(flat: Doubles, borders: Borders) -> Doubles:
    """The sum of each cell of each row."""
    length = (len(flat) - 1) // len(borders)
    starts = borders[:, :-1] + length * np.arange(len(borders))[:, None]
    sums = np.add.reduceat(flat, np.append(starts.reshape(-1), len(flat) - 1))[:-1].reshape(starts.shape)
    return np.where(borders[:, 1:] > borders[:, :-1], sums, 0.0)


def _running(numbers: Doubles) -> Doubles:
    """The sums of the first 0, 1, 2, … numbers of each row."""
    sums = np.zeros((numbers.shape[0], numbers.shape[1] + 1))
    np.cumsum(numbers, axis=1, out=sums[:, 1:])
    return sums


def _cells(ordered: Units, count: int) -> Borders:
    """Borders of `count` cells of equal ∫ f^⅓, which is n^⅓·w^⅔ for n values over a width w.

    Values far from all others would get many empty cells, so n values get at most n cells.
    """
    length = ordered.shape[1]
    tail = max(0, length - _TAIL)
    points = np.concatenate((np.arange(0, tail, max(1, length // (_POINTS * count))), np.arange(tail, length)))
    apart, number = np.diff(ordered[:, points], axis=1).astype(np.float64), np.diff(points)
    share = np.cbrt(apart * apart * number)
    for _ in range(_EVENINGS):
        share = np.minimum(share, number * (share.sum(axis=1, keepdims=True) / count))
    sums = _running(share)
    wanted = sums[:, -1:] * (np.arange(1, count) / count)
    borders = [points[np.searchsorted(row, want)] for row, want in zip(sums, wanted, strict=True)]
    return _with_ends(np.array(borders), length)


def _with_ends(borders: Borders, length: int) -> Borders:
    rows = len(borders)
    return np.concatenate((np.zeros((rows, 1), np.int64), borders, np.full((rows, 1), length)), axis=1)


def _means(ordered: Units, borders: Borders, sums: Doubles) -> Doubles:
    """The mean of each cell; for an empty one the value at which it would begin."""
    filled = np.diff(borders, axis=1)
    first = np.take_along_axis(ordered, np.minimum(borders[:, :-1], ordered.shape[1] - 1), axis=1)
    return np.where(filled > 0, sums / np.maximum(filled, 1) + ordered[:, :1], first)


def _joined(cells: Borders, sums: Doubles, squares: Doubles, count: int, widest: int) -> tuple[Borders, Doubles]:
    """The cells joined into `count` groups of at most `widest` with the least squared error, and the groups' sums.

    The best way to a border in n steps is the best way to an earlier border in n − 1 steps, and one step more.
    """
    rows, ends = cells.shape
    total = _running(sums)
    error = _step_errors(cells, total, _running(squares), widest)
    padded = np.full((rows, widest + ends), np.inf)
    padded[:, widest] = 0.0
    before = np.lib.stride_tricks.sliding_window_view(padded, ends, axis=1)[
        :, widest - 1 :: -1
    ]  # 1, 2, … cells earlier
    best = [padded.copy()]
    for _ in range(count):
        padded[:, widest:] = (before + error).min(axis=1)
        best.append(padded.copy())
    row, at = np.arange(rows), np.full(rows, ends - 1)
    path = [at]
    for earlier in best[-2::-1]:
        ways = earlier[row[:, None], widest + at[:, None] - np.arange(1, widest + 1)] + error[row, :, at]
        at = at - 1 - ways.argmin(axis=1)
        path.append(at)
    borders = np.stack(path[::-1], axis=1)
    return np.take_along_axis(cells, borders, axis=1), np.diff(np.take_along_axis(total, borders, axis=1), axis=1)


def _step_errors(cells: Borders, total: Doubles, squares: Doubles, widest: int) -> Doubles:
    """The squared error of joining the 1 to `widest` cells before each border."""
    start = np.arange(cells.shape[1]) - np.arange(1, widest + 1)[:, None]
    from_start = np.maximum(start, 0)
    number = np.maximum(cells[:, None, :] - cells[:, from_start], 1)
    between = total[:, None, :] - total[:, from_start]
    error = squares[:, None, :] - squares[:, from_start] - between * between / number
    return np.where(start >= 0, error, np.inf)
