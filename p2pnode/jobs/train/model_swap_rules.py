"""Decides whether data travel or models, by bytes and with a reason; and what a swapped model brings back. Pure.

In a model swap a copy of some weights goes to another node, is trained there for a few local steps, and the largest
changes come back as a delta.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...compression.codec import decode_delta, encode_delta
from ...compression.delta import SparseDelta
from ...compression.residual import make_delta
from ...compression.weights import Floats, from_units, to_units

DENSITY = 0.05  # of the weights that come back
LEAST, MOST = 256, 131_072  # coordinates; with more a delta would not fit into a call
BITS = 4
FARTHEST = 0.25  # bound on the change by a swap, relative to the norm of the weights


@dataclass(frozen=True)
class Swap:
    """Whether models travel or a shard does, with the reason."""

    model_travels: bool
    reason: str


def choose_swap(shard_bytes: int, model_bytes: int, delta_bytes: int, private: bool) -> Swap:
    """Compare sending a shard with a model swap, which sends the weights and a delta both ways.

    Private data never travel, whatever the bytes.
    """
    swap_bytes = 2 * (model_bytes + delta_bytes)
    if private:
        return Swap(True, f"the data are private: models travel, {_size(swap_bytes)}")
    if swap_bytes < shard_bytes:
        return Swap(True, f"models travel: {_size(swap_bytes)}, the shard would be {_size(shard_bytes)}")
    return Swap(False, f"the shard travels: {_size(shard_bytes)}, models would be {_size(swap_bytes)}")


def swap_entries(size: int) -> int:
    """How many coordinates of a model of this size come back."""
    return min(size, max(LEAST, round(DENSITY * size)), MOST)


def encode_result(begun: Floats, after: Floats) -> bytes:
    """The largest changes of a swap, encoded; ValueError when they are not finite."""
    delta, _ = make_delta(to_units(after - begun), swap_entries(len(begun)), BITS, 1.0)
    return encode_delta(delta)


def decode_result(data: bytes, size: int) -> SparseDelta:
    """The delta that came back; ValueError when it is malformed."""
    return decode_delta(data, size, swap_entries(size))


def with_result(weights: Floats, delta: SparseDelta) -> Floats:
    """The weights with the delta of a swap, scaled down if it would lead too far."""
    theirs = from_units(delta.values)
    distance, limit = float(np.linalg.norm(theirs)), FARTHEST * float(np.linalg.norm(weights))
    together = weights.copy()
    together[delta.indices] += theirs if distance <= limit else theirs * np.float32(limit / distance)
    return together


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 10_000 else f"{count / 1e3:.2f} kB"
