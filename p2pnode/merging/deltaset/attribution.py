"""Whose work is in the weights, and authors whose entries this node leaves out of its own weights.

Leaving out is a private offset on what the node trains and exports; the set, its hash and its snapshots do not change
(docs/architecture.md). It reaches as far back as entries are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...compression.weights import Floats, Units, WeightLayout, from_units
from ...storage.checkpoints import Arrays
from .entry import Entry, SetRules, delta_of
from .exchange import bytes_array
from .log import Change
from .set import DeltaSet, apply, unapply


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


def shares(entries: Iterable[Entry], rules: SetRules, layout: WeightLayout) -> dict[str, dict[str, float]]:
    """Each author's share of what the entries given added to each layer."""
    sums = attribute(entries, rules, layout)
    totals = {layer: max(1, sum(own[layer] for own in sums.values())) for layer in layout.layers()}
    return {author: {layer: own[layer] / totals[layer] for layer in totals} for author, own in sums.items()}


EVERYTHING = slice(None)
_PEERS, _OFFSET = "left out/peers", "left out/offset"


class ExcludedAuthors:
    """The sum of the entries that are left out. Costs nothing while there are none."""

    def __init__(self) -> None:
        self.peers: frozenset[str] = frozenset()
        self._offset: Units | None = None

    def begin(self, deltas: DeltaSet, peer: str) -> None:
        """Leave out the kept entries of a peer, and those that come from now on."""
        if peer in self.peers:
            return
        offset = added_by(deltas, peer)
        self._offset = offset if self._offset is None else self._offset + offset
        self.peers |= {peer}

    def follow(self, change: Change, deltas: DeltaSet) -> None:
        """Update the sum: entries were added to the set, or removed from it."""
        if self._offset is None:
            return
        for entry in change.added:
            if entry.peer in self.peers:
                apply(self._offset, delta_of(entry, deltas.rules))
        for entry in change.removed:
            if entry.peer in self.peers:
                unapply(self._offset, delta_of(entry, deltas.rules))

    def move(self, deltas: DeltaSet) -> None:
        """Go on in another set. If it has entries the sum is computed anew; else it goes on from the same weights."""
        if self._offset is not None and deltas.heads:
            self._offset = sum((added_by(deltas, peer) for peer in self.peers), np.zeros_like(deltas.units))

    def weights(self, deltas: DeltaSet, part: slice = EVERYTHING) -> Floats:
        """A without the excluded authors, or a part of it."""
        units = deltas.units[part]
        return from_units(units if self._offset is None else units - self._offset[part])

    def arrays(self) -> Arrays:
        if self._offset is None:
            return {}
        return {_PEERS: bytes_array(msgspec.msgpack.encode(sorted(self.peers))), _OFFSET: self._offset.copy()}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        if _PEERS in arrays and _OFFSET in arrays:
            self.peers = frozenset(msgspec.msgpack.decode(arrays[_PEERS].tobytes(), type=list[str]))
            self._offset = arrays[_OFFSET].astype(np.int32)
