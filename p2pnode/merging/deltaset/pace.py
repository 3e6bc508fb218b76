"""How long rounds are, and the learning rate of local steps, for a circle that shares a delta set. Pure.

*Rate.* A circle of G adds up a mean, which has 1/√G of the noise of one node's steps. So local steps may be √G times as
large before noise limits them, and should be, because a sparse mean also reaches less far. In single runs 2.5 times the
task's own rate did best for Fashion-MNIST at 8 peers, 2 or more for text, 2.8 for digits. A node alone keeps the task's
rate, and a node whose steps diverge halves its own (jobs/train/job.py). A short run with a planned end, at which the
rate falls to nothing, bears more where progress is spread evenly: text, 500 steps, 3.3 times the task's rate was 0.04
nats better than 2 times; at 4,000 steps 2 times did best.
*Schedule.* A task's schedule follows the steps of the lineage, so that nodes that join or move do not warm up again.
*Steps.* Weights that change quickly become outdated quickly. So a round takes at most a share of all steps that the
circle's weights have seen: exchanges are frequent at the beginning and soon as rare as the plan says. Where progress is
spread evenly (steering.py), nodes keep a part of what they did not send, so they need no very short rounds and save the
bytes: text, 500 steps, was as good with a quarter less.
"""

from __future__ import annotations

import math

from ..policy import Pace

MOST_RATE = 2.5
FEWEST_STEPS, EVEN_STEPS = 5.0, 10.0
MOST_SHORT_RATE = 3.3  # in a short run
LONG_RUN = 4000  # steps; 500 bear MOST_SHORT_RATE / 2 = 1.65 times as much
SHORT_RUN_POWER = 0.24
SHARE = 1 / 20  # of the steps done so far that a round may take


def pace_for(done: float, group: int, even: bool = False, planned: int = 0) -> Pace:
    """The pace of a circle of `group` members that have done `done` local steps each of the `planned` ones.

    `even` says whether progress is spread evenly over the coordinates.
    """
    rate = min(MOST_RATE, math.sqrt(max(1, group)))
    if not even:
        return Pace(max(FEWEST_STEPS, SHARE * done), rate)
    if planned and group > 1:
        rate = min(MOST_SHORT_RATE, rate * max(1.0, (LONG_RUN / planned) ** SHORT_RUN_POWER))
    return Pace(max(EVEN_STEPS, SHARE * done), rate)
