"""Slows a node down when its swarm has converged, and decides when it goes back to full speed. Pure.

A run has converged for this node when updates hardly change the shared weights and the test results have not become
better for a while: PATIENCE_TESTS tests, PATIENCE_ROUNDS rounds and PATIENCE_PASSES passes through its samples, so that
a large model that has not seen its data yet is never slowed down. The node then rests after each round, a little longer
each time, until it trains LEAST_DUTY of the time. It goes on exchanging, so newcomers and others' work reach it and
wake it.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from ..config.until import THRESHOLD, Until
from ..tasks.task import Evaluation
from ..wire.ids import PeerId
from ..wire.status import LimitOptions
from ..wire.types import Seconds

PATIENCE_ROUNDS = 50
PATIENCE_PASSES = 3.0
PATIENCE_TESTS = 10  # tests come by the clock, and rounds of a small model take a tenth of a second
BETTER_LOSS = 0.01  # of the best test loss so far, by which a new one must be lower
BETTER_ACCURACY = 0.002
BETTER_SAMPLES = 3  # of the test samples: in a small test set one or two come and go while the loss stays
NOTABLE = 2 * THRESHOLD  # change of the shared weights in one round that ends the rests
JUMP = 3.0  # times the largest loss of CALM rounds: a loss that ends the rests,
SMALL = 0.01  # if it is above this share of the first loss
CALM = 20
LEAST_DUTY = 0.05  # share of the time for training, at the end
GROWTH = 1.5  # of the rests, from round to round
LONGEST_REST: Seconds = 600.0


@dataclass(frozen=True)
class Surroundings:
    """What training depends on besides the weights. A change ends the rests."""

    members: frozenset[PeerId]  # other members of the circle
    shards: frozenset[str]  # that travel and are here
    samples: int
    limits: LimitOptions


def change_of(before: Surroundings, now: Surroundings) -> str:
    """What has changed so that training may get somewhere again, in words; "" while nothing has."""
    if now.members - before.members:
        return "a member came"
    if now.samples != before.samples or now.shards != before.shards:
        return "its samples changed"
    return "its limits changed" if now.limits != before.limits else ""


def notable_change(update_norm: float) -> str:
    """Why a merge that changed the weights this much ends the rests, in words; "" when it does not."""
    return f"the shared weights changed by {update_norm:.1%}" if update_norm > NOTABLE else ""


def delayed_by_rests(until: Until | None) -> bool:
    """Whether rests would only delay what the user waits for: some steps or rounds, or that the run converges.

    With another goal a node rests as without one: an accuracy may never be reached, and time passes anyway.
    """
    return until is not None and until.what in ("steps", "rounds", "converged")


def rest_after(round_seconds: Seconds, rests: int) -> Seconds:
    """How long to rest after a round that took so long, when there were `rests` before."""
    times = min(GROWTH ** min(rests, CALM), 1 / LEAST_DUTY - 1)  # the round's own time
    return min(times * round_seconds, LONGEST_REST)


class Slowdown:
    """Follows one node's rounds and tests. `reason` says why it is slowed down; "" at full speed."""

    def __init__(self) -> None:
        self.reason = ""
        self.rests = 0
        self._first_loss: float | None = None
        self._losses: deque[float] = deque(maxlen=CALM)
        self._best: Evaluation | None = None
        self._rounds = 0  # since the results last became better
        self._passes = 0.0
        self._tests = 0

    def note_round(self, loss: float, update_norm: float, smoothed_norm: float, passes: float) -> str:
        """Take in a round. Returns why the node goes back to full speed; "" when it does not."""
        self._first_loss = loss if self._first_loss is None else self._first_loss
        self._rounds += 1
        self._passes += passes
        if self.reason:
            loud = self._losses and loss > max(JUMP * max(self._losses), SMALL * abs(self._first_loss))
            return self.wake(notable_change(update_norm) or (f"the training loss rose to {loss:.3g}" if loud else ""))
        self._losses.append(loss)
        patient = self._rounds >= PATIENCE_ROUNDS and self._passes >= PATIENCE_PASSES and self._tests >= PATIENCE_TESTS
        if smoothed_norm < THRESHOLD and patient:
            self.reason = (
                f"converged: updates change the weights by {smoothed_norm:.2%} only, and the test results have not "
                f"become better for {self._rounds} rounds"
            )
        return ""

    def note_test(self, now: Evaluation) -> str:
        """Take in an evaluation. Returns why the node goes back to full speed; "" when it does not."""
        if self._best is None or now.samples != self._best.samples or is_better(now, self._best):
            known = self._best is not None and now.samples == self._best.samples
            self._best = now if self._best is None or not known else best_of(now, self._best)
            self._rounds, self._passes, self._tests = 0, 0.0, 0
            return self.wake("the test results became better") if known else ""
        self._tests += 1
        return ""

    def rest(self, round_seconds: Seconds) -> Seconds:
        """How long to rest after a round that took so long: 0 at full speed."""
        if not self.reason:
            return 0.0
        found = rest_after(round_seconds, self.rests)
        self.rests += 1
        return found

    def wake(self, why: str) -> str:
        """Go back to full speed because of `why`, if there is a reason; returns it if the node was slowed down."""
        if not why or not self.reason:
            return ""
        self.reason, self.rests, self._rounds, self._passes, self._tests = "", 0, 0, 0.0, 0
        self._losses.clear()
        return why


def is_better(now: Evaluation, best: Evaluation) -> bool:
    """Whether test results are better than the best so far by more than chance."""
    if now.loss < best.loss - BETTER_LOSS * abs(best.loss) or not math.isfinite(best.loss):
        return True
    if now.accuracy is None or best.accuracy is None:
        return False
    least = max(BETTER_ACCURACY, (BETTER_SAMPLES - 0.5) / max(1, now.samples))  # half a sample for rounding
    return now.accuracy - best.accuracy >= least


def best_of(one: Evaluation, other: Evaluation) -> Evaluation:
    """The better loss and the better accuracy of two evaluations."""
    right = [each.accuracy for each in (one, other) if each.accuracy is not None]
    return Evaluation(min(one.loss, other.loss), max(right, default=None), one.samples)
