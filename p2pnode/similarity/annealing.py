"""How a run goes from many communities to one: the rule of the cut and of the bridges, all of it here.

    progress      0 at the run's beginning, 1 after ROUNDS_TO_ONE of its rounds (slower where communities are the aim)
    cut           from the median merge of the dendrogram up to where nine tenths of the peers are together; at the end
                  above everything: one community
    bridge rate   0.05 to 0.5: how often a round has a partner outside the own circle

The cut adapts to the view, since models of one run may all be alike to 0.9 or not to 0.5; a few outliers, or liars up
to a tenth of the view, do not move it far. Circles never grow with annealing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..wire.run import Aim

ROUNDS_TO_ONE: Mapping[Aim, float] = {"shared": 300.0, "own": 3000.0}
STEPS = 32  # progress goes in so many steps: nodes agree on it although their clocks differ, and communities stay calm
BRIDGE_RATES = (0.05, 0.5)
TOGETHER = 0.9


def progress_of(age_rounds: float, aim: Aim = "shared") -> float:
    """How far a run of that age has annealed, 0 to 1."""
    share = age_rounds / ROUNDS_TO_ONE[aim]
    return math.floor(min(1.0, max(0.0, share)) * STEPS) / STEPS


def bridge_rate(progress: float, often: float = 1.0) -> float:
    """The chance of a bridge in a round; `often` is how many times the usual one a run wants."""
    low, high = BRIDGE_RATES
    return min(1.0, often * (low + (high - low) * progress))


def cut_height(middle: float, together: float, progress: float) -> float:
    """Where the dendrogram is cut, given its median merge and the height at which TOGETHER of the peers are one."""
    return math.inf if progress >= 1 else middle + max(0.0, together - middle) * progress
