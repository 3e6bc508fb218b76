"""A sparse delta: which coordinates change, and by how many units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .weights import MAX_SIZE, MAX_UNITS, Units

Indices = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class SparseDelta:
    """Changes of some of `size` coordinates: strictly increasing indices and as many values, in units.

    Contract: well-formed by construction, or ValueError; its arrays are read-only views, since deltas are shared.
    """

    size: int
    indices: Indices
    values: Units

    def __post_init__(self) -> None:
        indices, values = self.indices, self.values
        if indices.dtype != np.uint32 or values.dtype != np.int32:
            raise ValueError(f"indices are {indices.dtype} and values {values.dtype}; uint32 and int32 are due")
        if indices.ndim != 1 or indices.shape != values.shape:
            raise ValueError(f"{indices.shape} indices and {values.shape} values")
        if not 0 < self.size <= MAX_SIZE or (len(indices) and int(indices[-1]) >= self.size):
            raise ValueError(f"an index beyond {self.size} coordinates, or too many of these")
        if not (indices[1:] > indices[:-1]).all():
            raise ValueError("indices do not increase")
        if len(values) and max(-int(values.min()), int(values.max())) > MAX_UNITS:
            raise ValueError(f"a value beyond {MAX_UNITS} units")
        object.__setattr__(self, "indices", _read_only(indices))
        object.__setattr__(self, "values", _read_only(values))

    @property
    def dense(self) -> bool:
        """Whether every coordinate is there."""
        return len(self.indices) == self.size

    def __len__(self) -> int:
        return len(self.indices)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SparseDelta):
            return NotImplemented
        same_places = self.size == other.size and np.array_equal(self.indices, other.indices)
        return same_places and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
