"""Which rows of a data set a node trains on, without listing them where they are too many for memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

SampleNumbers = NDArray[np.int64]  # rows of a data set, or places in a pool

LISTED = 1 << 18  # up to this many rows are listed one by one; of more, a node trains on this many at a time


@dataclass(frozen=True, eq=False)
class RowSet:
    """The rows from `start` to `stop` whose number, counted from `start`, is one of `chosen` modulo `pieces`."""

    start: int
    stop: int
    pieces: int
    chosen: SampleNumbers  # ascending

    def __len__(self) -> int:
        full, more = self._whole
        return full * len(self.chosen) + more

    @property
    def _whole(self) -> tuple[int, int]:
        """How many rows every piece has, and how many of the chosen ones have one more."""
        full, left = divmod(self.stop - self.start, self.pieces)
        return full, int(np.searchsorted(self.chosen, left))

    def at(self, places: SampleNumbers) -> SampleNumbers:
        """The rows at some places of the set, each below its length."""
        count = len(self.chosen)
        rows: SampleNumbers = self.start + self.chosen[places % count] + places // count * self.pieces
        return rows

    def holds(self, rows: SampleNumbers) -> NDArray[np.bool_]:
        """Whether each of some rows is in the set."""
        inside = (rows >= self.start) & (rows < self.stop)
        found: NDArray[np.bool_] = inside & np.isin((rows - self.start) % self.pieces, self.chosen)
        return found

    def same(self, other: object) -> bool:
        return (
            isinstance(other, RowSet)
            and (self.start, self.stop, self.pieces) == (other.start, other.stop, other.pieces)
            and np.array_equal(self.chosen, other.chosen)
        )

    def working_set(self, seed: int, turn: int) -> SampleNumbers:
        """LISTED of the rows, ascending; others at each turn, and all of them before one comes again."""
        count, size = len(self), min(len(self), LISTED)
        draw = int.from_bytes(blake3(f"working set {seed} {count}".encode()).digest(16))
        first, step = draw % count, 1 + (draw >> 64) % max(1, count - 1)
        while math.gcd(step, count) != 1:
            step = step % count + 1
        places = [(first + step * number) % count for number in range(turn * size, (turn + 1) * size)]
        return np.sort(self.at(np.array(places, np.int64)))


Rows = SampleNumbers | RowSet  # listed, or described where there are more than LISTED


def row_range(start: int, stop: int) -> Rows:
    """The rows from `start` to `stop`."""
    found = RowSet(start, stop, 1, np.zeros(1, np.int64))
    return listed(found) if len(found) <= LISTED else found


def listed(rows: Rows) -> SampleNumbers:
    """All the rows as numbers."""
    return rows.at(np.arange(len(rows))) if isinstance(rows, RowSet) else rows


def same_rows(one: Rows, other: Rows) -> bool:
    if isinstance(one, RowSet):
        return one.same(other)
    return not isinstance(other, RowSet) and np.array_equal(one, other)
