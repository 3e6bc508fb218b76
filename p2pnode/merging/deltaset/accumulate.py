"""Adding up deltas on the grid: int32 with wrap-around, so that order, duplicates taken back and subsets never matter.

Saturating addition would not be associative; wrapping is. Honest publishers keep |A| within ±MAX_UNITS (`in_range`).
"""

from __future__ import annotations

import numpy as np
from blake3 import blake3

from ...compression.delta import SparseDelta
from ...compression.weights import MAX_UNITS, Units

CHUNK_UNITS = 1 << 18  # coordinates that are hashed together: 1 MiB


def apply(units: Units, delta: SparseDelta) -> None:
    """A += delta, in place. `unapply` undoes it exactly."""
    _fits(units, delta)
    if delta.dense:
        units += delta.values
    else:
        np.add.at(units, delta.indices, delta.values)  # half the time of fetching, adding and putting back


def unapply(units: Units, delta: SparseDelta) -> None:
    """A −= delta, in place."""
    _fits(units, delta)
    if delta.dense:
        units -= delta.values
    else:
        np.subtract.at(units, delta.indices, delta.values)


def in_range(units: Units, delta: SparseDelta) -> bool:
    """Whether a publisher may publish `delta` on top of A: every weight it touches stays within ±MAX_UNITS."""
    _fits(units, delta)
    after = units[delta.indices].astype(np.int64) + delta.values
    return not len(after) or bool(np.abs(after).max() <= MAX_UNITS)


def chunk_hashes(units: Units) -> list[bytes]:
    """blake3 of each chunk's little-endian bytes."""
    raw = np.ascontiguousarray(units, "<i4")
    return [
        blake3(raw[start : start + CHUNK_UNITS].view(np.uint8).data).digest()
        for start in range(0, len(raw), CHUNK_UNITS)
    ]


def weights_hash(units: Units) -> bytes:
    """The hash of A: over its chunks' hashes."""
    return hash_of_chunks(len(units), chunk_hashes(units))


def hash_of_chunks(size: int, hashes: list[bytes]) -> bytes:
    return blake3(b"p2pnode weights 1\0" + size.to_bytes(8, "little") + b"".join(hashes)).digest()


def _fits(units: Units, delta: SparseDelta) -> None:
    if delta.size != len(units) or units.dtype != np.int32:
        raise ValueError(f"a delta of {delta.size} coordinates for {len(units)} {units.dtype}")
