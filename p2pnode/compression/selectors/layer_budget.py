"""Budgets of layers: a share of what is sent is dealt out to the layers by size, the rest goes where it is largest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..delta import Indices
from ..weights import Units
from .magnitude import largest


def largest_by_layer(units: Units, k: int, layers: Sequence[int], share: float) -> Indices:
    """The places of about k coordinates, increasing: of `share`·k each layer has its part, its own largest.

    A small layer that moves little is then heard too, which plain magnitude would leave waiting.
    """
    if sum(layers) != len(units):
        raise ValueError(f"layers of {sum(layers)} coordinates in all; there are {len(units)}")
    dealt = min(k, round(share * k))
    borders = np.cumsum([0, *layers])
    parts = [
        largest(units[start:end], round(dealt * (end - start) / len(units))).astype(np.uint32) + np.uint32(start)
        for start, end in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True)
    ]
    own: Indices = np.concatenate(parts) if parts else np.empty(0, np.uint32)
    rest = units.copy()
    rest[own] = 0
    chosen: Indices = np.sort(np.concatenate([own, largest(rest, max(0, k - len(own)))]))
    return chosen
