"""The learning rate over a run whose length is planned. Pure.

Local steps of constant size leave noise in the weights that a falling rate takes out: the shared weights of a run that
ends with a small rate are better than those of one that just stops (text, 500 steps: 0.11 nats for a delta set, 0.04
for dense averaging).
"""

from __future__ import annotations

LONGEST_SHARE = 0.5  # of a run, in which the rate falls
USUAL_SHARE = 0.25
FEWEST_STEPS = 250.0  # in which it falls, unless that is more than the longest share
LAST_RATE = 0.01  # what is left of it at the end, and for those who train on


def planned_rate(at: int, planned: int) -> float:
    """The factor on the learning rate at step `at` of a run that is planned for `planned` steps; 1 without a plan.

    It falls linearly over the last half of a short run (500 steps) or the last quarter of a long one (1,000 and more).
    """
    if planned <= 0:
        return 1.0
    falling = min(LONGEST_SHARE * planned, max(FEWEST_STEPS, USUAL_SHARE * planned))
    return min(1.0, max(LAST_RATE, (planned - at) / falling))
