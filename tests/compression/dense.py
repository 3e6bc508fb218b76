"""Deltas of all coordinates, which the tests of codecs, entries and sets need."""

from __future__ import annotations

import numpy as np

from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.weights import Units


def dense_delta(values: Units) -> SparseDelta:
    return SparseDelta(len(values), np.arange(len(values), dtype=np.uint32), values)
