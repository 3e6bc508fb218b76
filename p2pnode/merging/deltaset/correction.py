"""Lets in entries of others during a round: the steps done so far stay on top of what arrived.

With x the weights in training, s where the round started, and ΔA the change of the circle's weights since then:

    x += ΔA,  s += ΔA

so that x − s, the progress of the round, does not change. There is no threshold beyond which steps would be given up:
none ever gained anything (docs/log.md).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...compression.weights import Floats


def let_in(start: Floats, x: Floats, now: Iterable[tuple[slice, Floats]]) -> None:
    """Move a round to where it would start `now`, block by block. `start` and `x` change in place.

    ValueError, and nothing changed, when `x` has values that are not finite.
    """
    if not np.isfinite(x).all():
        raise ValueError("the weights in training are not finite numbers")
    for block, moved in now:
        x[block] += moved - start[block]
        start[block] = moved
