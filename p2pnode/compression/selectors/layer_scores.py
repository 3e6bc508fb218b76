"""Scores of layers, a byte each: a hint that travels with entries, so that nodes know which layers matter to others.

A byte is 128 for the average of all layers and 16 more for each doubling. A model of more than MAX_LAYERS layers
publishes the scores of groups of consecutive layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..delta import Indices
from ..selector import MAX_HINT_BYTES
from ..weights import Doubles, Floats

MAX_LAYERS = MAX_HINT_BYTES  # a byte each
MEMORY = 0.9  # of the rolling mean of other nodes' scores, per entry
_AVERAGE, _DOUBLING = 128, 16


class LayerScores:
    """The groups of layers that have a score, and a rolling mean of what other nodes publish about them."""

    def __init__(self, layers: Sequence[int]) -> None:
        group = -(-len(layers) // MAX_LAYERS)
        borders = np.cumsum([0, *layers])
        self.starts = borders[:-1:group]
        self._sizes = np.diff(np.append(self.starts, borders[-1]))
        self._others: Doubles = np.zeros(len(self.starts))  # log2 of the relative score
        self.heard = 0

    def encode(self, indices: Indices, scores: Floats) -> bytes:
        """The average score over all of each layer, where coordinates that are not in `indices` count 0."""
        layers = np.searchsorted(self.starts, indices, side="right") - 1
        sums = np.bincount(layers, scores, len(self.starts))
        total = float(sums.sum())
        if not 0.0 < total < float("inf"):
            return bytes([_AVERAGE]) * len(self.starts)
        relative = sums / self._sizes * (float(self._sizes.sum()) / total)
        coded = np.rint(_AVERAGE + _DOUBLING * np.log2(np.maximum(relative, 2.0**-8)))
        return bytes(np.clip(coded, 0, 255).astype(np.uint8))

    def hear(self, scores: bytes) -> None:
        """Takes another node's scores. Those that do not fit this model are ignored: nobody has checked them."""
        if len(scores) != len(self.starts):
            return
        logs = (np.frombuffer(scores, np.uint8).astype(np.float64) - _AVERAGE) / _DOUBLING
        keep = MEMORY if self.heard else 0.0
        self._others = keep * self._others + (1 - keep) * logs
        self.heard += 1

    def at(self, indices: Indices) -> Floats:
        """The other nodes' mean score of each coordinate's layer; 1 for an average layer, and before any is heard."""
        layers = np.searchsorted(self.starts, indices, side="right") - 1
        factors: Floats = np.exp2(self._others).astype(np.float32)[layers]
        return factors
