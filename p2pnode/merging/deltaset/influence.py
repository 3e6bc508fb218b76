"""Who moved the weights, and what they would be without somebody: as far back as entries are kept."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...compression.weights import Units, WeightLayout
from .accumulate import apply
from .entry import Entry, SetRules, delta_of
from .set import DeltaSet


def added_by(deltas: DeltaSet, peer: str) -> Units:
    """The sum of a peer's kept entries. `units - added_by` removes its influence to first order (a private offset)."""
    total = np.zeros(deltas.rules.size, np.int32)
    for entry in deltas.log:
        if entry.peer == peer:
            apply(total, delta_of(entry, deltas.rules))
    return total


def attribute(entries: Iterable[Entry], rules: SetRules, layout: WeightLayout) -> dict[str, dict[str, int]]:
    """Σ|v| in units by author and layer, over the entries given."""
    places = layout.layers()
    names = list(places)
    borders = np.array([places[name].start for name in names])
    shares: dict[str, dict[str, int]] = {}
    for entry in entries:
        delta = delta_of(entry, rules)
        layers = np.searchsorted(borders, delta.indices, side="right") - 1
        sums = np.zeros(len(names), np.int64)
        np.add.at(sums, layers, np.abs(delta.values).astype(np.int64))
        mine = shares.setdefault(entry.peer, dict.fromkeys(names, 0))
        for name, value in zip(names, sums.tolist(), strict=True):
            mine[name] += value
    return shares
