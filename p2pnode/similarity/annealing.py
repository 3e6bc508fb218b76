"""How a run goes from many communities to one: where the tree is cut, and how often circles are bridged.

    progress      0 at the start of the run, 1 after ROUNDS_TO_ONE of its rounds (slower if communities are the aim)
    cut           from the median join of the tree up to where nine tenths of the peers are together; at the end above
                  everything, so that there is one community; never below SAME
    bridge rate   0.05 to 0.5: the chance that a round has a partner outside this node's circle

The cut adapts to the view, since in one run all models may be similar to 0.9 and in another less than 0.5. A few
outliers, or liars up to a tenth of the view, do not move it far. Circles do not grow with annealing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..wire.run import Aim

ROUNDS_TO_ONE: Mapping[Aim, float] = {"shared": 300.0, "own": 3000.0}
STEPS = 32  # levels of progress: nodes agree on it although their clocks differ, and communities change rarely
BRIDGE_RATES = (0.05, 0.5)
TOGETHER = 0.9  # share of the peers
SAME = 0.01  # 1 − similarity that fingerprints cannot measure: models closer than this are never in two communities


def progress_of(age_rounds: float, aim: Aim = "shared") -> float:
    """How far a run of this age has annealed, 0 to 1."""
    share = age_rounds / ROUNDS_TO_ONE[aim]
    return math.floor(min(1.0, max(0.0, share)) * STEPS) / STEPS


def bridge_rate(progress: float, rate_factor: float = 1.0) -> float:
    """The chance of a bridge in a round; `rate_factor` is the factor on the usual rate that the run wants."""
    low, high = BRIDGE_RATES
    return min(1.0, rate_factor * (low + (high - low) * progress))


def cut_height(middle: float, together: float, progress: float) -> float:
    """Where the tree is cut, given its median join and the height at which TOGETHER of the peers are joined."""
    return math.inf if progress >= 1 else max(SAME, middle + max(0.0, together - middle) * progress)
