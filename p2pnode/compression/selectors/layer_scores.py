"""Scores of layers, a byte each: small enough to go along with an entry, so that partners know what matters to others.

A byte is 128 for the average of all layers and 16 more for each doubling. Models of more than MAX_LAYERS layers tell
the scores of groups of consecutive ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..selector import MAX_HINT_BYTES
from ..weights import Floats

MAX_LAYERS = MAX_HINT_BYTES  # a byte each
MEMORY = 0.9  # of the rolling mean of others' scores, per entry
_AVERAGE, _DOUBLING = 128, 16

Numbers = npt.NDArray[np.float64]


class LayerScores:
    """The groups of layers that are told, and a rolling mean of what others tell of them."""

    def __init__(self, layers: Sequence[int]) -> None:
        each = -(-len(layers) // MAX_LAYERS)
        borders = np.cumsum([0, *layers])
        self.starts = borders[:-1:each]
        self._sizes = np.diff(np.append(self.starts, borders[-1]))
        self._others: Numbers = np.zeros(len(self.starts))  # log2 of the relative score
        self.heard = 0

    def encode(self, places: npt.NDArray[np.uint32], scores: Floats) -> bytes:
        """Average scores over all of each layer, where coordinates that are not in `places` count 0."""
        layers = np.searchsorted(self.starts, places, side="right") - 1
        sums = np.bincount(layers, scores, len(self.starts))
        total = float(sums.sum())
        if not 0.0 < total < float("inf"):
            return bytes([_AVERAGE]) * len(self.starts)
        relative = sums / self._sizes * (float(self._sizes.sum()) / total)
        coded = np.rint(_AVERAGE + _DOUBLING * np.log2(np.maximum(relative, 2.0**-8)))
        return bytes(np.clip(coded, 0, 255).astype(np.uint8))

    def hear(self, told: bytes) -> None:
        """Another's scores; those that do not fit this model are passed over, being facts that nobody has checked."""
        if len(told) != len(self.starts):
            return
        logs = (np.frombuffer(told, np.uint8).astype(np.float64) - _AVERAGE) / _DOUBLING
        keep = MEMORY if self.heard else 0.0
        self._others = keep * self._others + (1 - keep) * logs
        self.heard += 1

    def at(self, places: npt.NDArray[np.uint32]) -> Floats:
        """Others' mean score of each coordinate's layer, 1 for an average one; all ones before any is heard."""
        layers = np.searchsorted(self.starts, places, side="right") - 1
        factors: Floats = np.exp2(self._others).astype(np.float32)[layers]
        return factors
