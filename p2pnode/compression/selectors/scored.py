"""Sends the coordinates of highest score: |residual| × influence × importance × layer score.

Each factor has a power, and a power of 0 leaves it out. The granularity decides whether single coordinates or blocks
are chosen. Only candidates are scored, the largest coordinates or the blocks of largest average, so time and memory
grow with the number of coordinates to send, apart from the rolling averages.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..delta import Indices
from ..selector import Budget, Selector, SelectorSetup
from ..weights import Floats, Units, from_units
from .granularity import FINE, GranularityControl, checked_granularity
from .importance import LearnedImportance
from .influence import LossInfluence
from .layer_scores import LayerScores


class Scored(Selector):
    """A product of factors, and a granularity. Its settings:

    influence         power of a coordinate's influence on the loss, 0 to 2
    least_influence   coordinates below this share of the mean influence are not sent, 0 to 10
    importance        power of the learned importance, 0 to 2
    layer_scores      power of the layer scores that partners publish, 0 to 2; above 0 this node publishes its own
    granularity       0 fine, 1 hybrid, 2 coarse, 3 rule, 4 learned (granularity.py)
    """

    def __init__(self, setup: SelectorSetup) -> None:
        settings = setup.settings
        self._influence_power = _power(settings, "influence")
        self._least_influence = _power(settings, "least_influence", 10.0)
        self._importance_power = _power(settings, "importance")
        self._layer_power = _power(settings, "layer_scores")
        layers, seed = setup.layers, setup.seed
        self.gradients: LossInfluence | None = None
        if self._influence_power or self._least_influence:
            self.gradients = LossInfluence(sum(layers), seed)
        self.importance = LearnedImportance(layers, seed, setup.background) if self._importance_power else None
        self.layer_scores = LayerScores(layers) if self._layer_power else None
        self.granularity = GranularityControl(checked_granularity(settings.get("granularity", FINE)), layers)

    def select(self, residual: Units, progress: Floats, budget: Budget, loss: float) -> Indices:
        if self.importance is not None:
            self.importance.note(progress)
        indices = self.granularity.select(residual, budget, loss, lambda found: self._score(residual, found))
        self.single = self.granularity.current == FINE
        return indices

    def sent(self, entries: int, payload_bytes: int) -> None:
        self.granularity.sent(entries, payload_bytes)

    def hear(self, hint: bytes) -> None:
        if self.layer_scores is not None:
            self.layer_scores.hear(hint)

    def _score(self, residual: Units, indices: Indices) -> Floats:
        """The scores of increasing indices; 0 for a coordinate that must not be sent."""
        here = residual[indices]
        change = from_units(here)
        scores = np.abs(change)
        if self.gradients is not None:
            influence = self.gradients.at(indices, change)
            scores *= influence**self._influence_power
            scores[influence < self._least_influence] = 0.0
        if self.importance is not None:
            scores *= self.importance.at(indices, here) ** self._importance_power
        if self.layer_scores is not None:
            self.hint = self.layer_scores.encode(indices, scores)
            scores *= self.layer_scores.at(indices) ** self._layer_power
        return scores


def _power(settings: Mapping[str, float], name: str, maximum: float = 2.0) -> float:
    value = float(settings.get(name, 0.0))
    if not 0.0 <= value <= maximum:
        raise ValueError(f"{name} {value} is not between 0 and {maximum:g}")
    return value
