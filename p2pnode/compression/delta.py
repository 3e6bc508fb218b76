"""A sparse delta: which coordinates of the weights change, and by how many units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .weights import MAX_SIZE, MAX_UNITS, Units

Indices = npt.NDArray[np.uint32]  # coordinates of the weights


@dataclass(frozen=True, eq=False)
class SparseDelta:
    """Changes of some of `size` coordinates: strictly increasing indices, and a value in units for each.

    A delta is well-formed or cannot be made (ValueError). Its arrays are read-only views, since deltas are shared.
    """

    size: int
    indices: Indices
    values: Units

    def __post_init__(self) -> None:
        indices, values = self.indices, self.values
        if indices.dtype != np.uint32 or values.dtype != np.int32:
            raise ValueError(f"indices are {indices.dtype} and values {values.dtype}; expected uint32 and int32")
        if indices.ndim != 1 or indices.shape != values.shape:
            raise ValueError(f"indices of shape {indices.shape} and values of shape {values.shape}")
        if not 0 < self.size <= MAX_SIZE or (len(indices) and int(indices[-1]) >= self.size):
            raise ValueError(f"an index beyond {self.size} coordinates, or more coordinates than {MAX_SIZE}")
        if not (indices[1:] > indices[:-1]).all():
            raise ValueError("the indices do not increase")
        if len(values) and max(-int(values.min()), int(values.max())) > MAX_UNITS:
            raise ValueError(f"a value beyond {MAX_UNITS} units")
        object.__setattr__(self, "indices", _read_only(indices))
        object.__setattr__(self, "values", _read_only(values))

    @property
    def dense(self) -> bool:
        """Whether every coordinate has a value."""
        return len(self.indices) == self.size

    def __len__(self) -> int:
        return len(self.indices)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SparseDelta):
            return NotImplemented
        same_indices = self.size == other.size and np.array_equal(self.indices, other.indices)
        return same_indices and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
