"""What a router sees of texts: how often tokens and pairs of tokens occur, in a fixed number of buckets. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..compression.weights import Floats

CHUNK = 4096  # sequences counted at a time
SINGLE = 4  # one of so many buckets is for single tokens
SPREAD_FIRST, SPREAD_SECOND = 31, 2_654_435_761  # of a pair's two tokens over the buckets


def token_counts(tokens: NDArray[np.integer], buckets: int) -> Floats:
    """Counts of tokens and of pairs of them, one row for each sequence."""
    found = np.zeros((len(tokens), buckets), np.float32)
    single = buckets // SINGLE
    for start in range(0, len(tokens), CHUNK):
        part = tokens[start : start + CHUNK].astype(np.int64)
        pairs = single + (part[:, :-1] * SPREAD_FIRST + part[:, 1:] * SPREAD_SECOND) % (buckets - single)
        places = np.concatenate([part % single, pairs], axis=1) + buckets * np.arange(len(part))[:, None]
        counts = np.bincount(places.ravel(), minlength=buckets * len(part))
        found[start : start + CHUNK] = counts.reshape(len(part), buckets)
    return found
