"""Whether the data go to the model or the model to the data: by bytes, with the reason; and what a model brings home.

A visit: a copy of some weights goes to where data stay, is trained there for a few local steps, and the largest of what
that changed comes home as a delta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...compression.codec import decode_delta, encode_delta
from ...compression.delta import SparseDelta
from ...compression.residual import make_delta
from ...compression.weights import Floats, from_units, to_units

DENSITY = 0.05  # of the weights, that come home
LEAST, MOST = 256, 131_072  # coordinates; above, a delta would not fit into a call
BITS = 4
FARTHEST = 0.25  # of the weights' norm, that a visit may change them by


@dataclass(frozen=True)
class Swap:
    """Which way is cheaper. `model_travels`: the weights visit, train there, and their delta comes home."""

    model_travels: bool
    reason: str


def choose_swap(shard_bytes: int, model_bytes: int, delta_bytes: int, private: bool) -> Swap:
    """Send a shard, or let two nodes exchange models for a while: twice the weights there, and a delta back each.

    Private data never travel, whatever the bytes are.
    """
    visit_bytes = 2 * (model_bytes + delta_bytes)
    if private:
        return Swap(True, f"the data are private: models travel, {_size(visit_bytes)}")
    if visit_bytes < shard_bytes:
        return Swap(True, f"models travel: {_size(visit_bytes)}, the shard would be {_size(shard_bytes)}")
    return Swap(False, f"the shard travels: {_size(shard_bytes)}, models would be {_size(visit_bytes)}")


def swap_entries(size: int) -> int:
    """How many coordinates of so many weights come home."""
    return min(size, max(LEAST, round(DENSITY * size)), MOST)


def to_bring(begun: Floats, after: Floats) -> bytes:
    """The largest of what a visit changed, for the way home; ValueError when that is no finite numbers."""
    delta, _ = make_delta(to_units(after - begun), swap_entries(len(begun)), BITS, 1.0)
    return encode_delta(delta)


def brought(data: bytes, size: int) -> SparseDelta:
    """What came home, in form; ValueError otherwise."""
    return decode_delta(data, size, swap_entries(size))


def at_home(weights: Floats, delta: SparseDelta) -> Floats:
    """Weights with what their visit brought, cut down where it leads too far: nobody is carried away by a host."""
    theirs = from_units(delta.values)
    way, most = float(np.linalg.norm(theirs)), FARTHEST * float(np.linalg.norm(weights))
    together = weights.copy()
    together[delta.indices] += theirs if way <= most else theirs * np.float32(most / way)
    return together


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 10_000 else f"{count / 1e3:.2f} kB"
