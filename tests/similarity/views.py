"""Views for tests: peers with fingerprints, in communities or without."""

from __future__ import annotations

import numpy as np

from p2pnode.similarity.fingerprint import DIMENSIONS, Row
from p2pnode.wire.ids import PeerId


def peer(number: int) -> PeerId:
    return PeerId(f"peer-{number:05d}")


def planted(communities: int, size: int, seed: int = 1, noise: float = 0.3) -> dict[PeerId, Row]:
    """Peers 0, k, 2k … are of the first community, 1, k+1 … of the second, and so on."""
    rng = np.random.default_rng(seed)
    common, centres = rng.normal(size=DIMENSIONS), rng.normal(size=(communities, DIMENSIONS))
    found = {}
    for number in range(communities * size):
        values = common + 0.5 * centres[number % communities] + noise * rng.normal(size=DIMENSIONS)
        found[peer(number)] = as_row(values)
    return found


def as_row(values: np.ndarray) -> Row:
    return np.rint(values * 127 / np.abs(values).max()).astype(np.int8)


def scattered(count: int, seed: int) -> dict[PeerId, Row]:
    rng = np.random.default_rng(seed)
    return {peer(number): as_row(rng.normal(size=DIMENSIONS) + 1) for number in range(count)}
