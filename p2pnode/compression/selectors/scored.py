"""What to send of a residual: score = |e| × importance × influence, each to a power that may be 0, and a granularity.

Plain magnitude needs none of this (`select.largest`). Only candidates are scored: the largest CANDIDATES·k
coordinates, or the blocks of largest average, so that time and memory beyond the rolling averages follow k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..delta import Indices
from ..weights import Floats, Units, from_units
from .granularity import FINE, Granulator
from .importance import Beside, LearnedImportance, inline
from .influence import LossInfluence
from .layer_scores import LayerScores


@dataclass(frozen=True)
class Scoring:
    """How coordinates are judged. Powers: 0 leaves the factor out, 1 is the product as it stands."""

    influence: float = 0.0
    importance: float = 0.0
    partners: float = 0.0  # power of the layer scores that partners tell; above 0 own ones are told too
    least_influence: float = 0.0  # τ: coordinates below this share of the mean influence are not sent
    granularity: int = FINE

    @property
    def plain(self) -> bool:
        """Whether this comes to the largest magnitudes."""
        return self == Scoring()


class Scorer:
    """One author's judgement. A round: `places`, then `sent`; between rounds `influence` may take a look."""

    def __init__(self, scoring: Scoring, layers: Sequence[int], seed: int, beside: Beside = inline) -> None:
        self.scoring = scoring
        looks = scoring.influence or scoring.least_influence
        self.influence = LossInfluence(sum(layers), seed) if looks else None
        self.importance = LearnedImportance(layers, seed, beside) if scoring.importance else None
        self.partners = LayerScores(layers) if scoring.partners else None
        self.layer_bytes = b""  # own scores of layers, of the last round
        self.granulator = Granulator(scoring.granularity, layers)

    def places(self, residual: Units, progress: Floats, k: int, most: int, bits: int, loss: float) -> Indices:
        """Heavy. Which coordinates to send after a round: k single ones, or what costs as many bytes, up to `most`."""
        if self.importance is not None:
            self.importance.note(progress)
        return self.granulator.places(residual, k, most, bits, loss, lambda places: self._score(residual, places))

    def sent(self, entries: int, payload_bytes: int) -> None:
        """What became of the places: how many entries, in how many bytes."""
        self.granulator.sent(entries, payload_bytes)

    @property
    def single(self) -> bool:
        """Whether the last places were single coordinates, not blocks."""
        return self.granulator.granularity == FINE

    def hear(self, layers: bytes) -> None:
        """Light. A partner's scores of layers, if it tells any."""
        if self.partners is not None:
            self.partners.hear(layers)

    def _score(self, residual: Units, places: Indices) -> Floats:
        """Scores of increasing places; 0 for what is not to be sent."""
        settings, here = self.scoring, residual[places]
        change = from_units(here)
        scores = np.abs(change)
        if self.influence is not None:
            influence = self.influence.at(places, change)
            scores *= influence**settings.influence
            scores[influence < settings.least_influence] = 0.0
        if self.importance is not None:
            scores *= self.importance.at(places, here) ** settings.importance
        if self.partners is not None:
            self.layer_bytes = self.partners.encode(places, scores)
            scores *= self.partners.at(places) ** settings.partners
        return scores
