"""When a node should stop training (`--until rounds:100`). `training/progress.py` knows whether it is time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..wire.errors import UsageError, near
from .units import TINY, read_positive_time, read_share, read_whole

EXAMPLES = "steps:2000, converged, converged:0.001, rounds:100, time:30m, accuracy:0.9"
MOST_STEPS = 1_000_000_000
COUNTS = ("steps", "rounds")
THRESHOLD = 0.002  # of the smoothed update norm, below which a run has converged


@dataclass(frozen=True)
class Until:
    """What to stop at. `amount` is a number of steps or rounds, seconds, an accuracy, or the update norm's threshold.

    Steps are those of the run: local steps that its members have done on average. Who founds a run with them plans its
    length, which becomes part of its manifest.
    """

    what: Literal["converged", "steps", "rounds", "time", "accuracy"]
    amount: float

    def __str__(self) -> str:
        return f"{self.what}:{int(self.amount) if self.what in COUNTS else format(self.amount, 'g')}"


def parse_until(text: str) -> Until:
    """Read `steps:N`, `converged`, `rounds:N`, `time:30m` or `accuracy:0.9`; UsageError says what is wrong."""
    what, colon, amount = text.strip().lower().partition(":")
    if what == "converged":
        return Until("converged", read_share(amount, TINY) if colon else THRESHOLD)
    if what == "steps":
        steps = read_whole(amount, 1)
        if steps > MOST_STEPS:
            raise UsageError(f"{text[:40]!r} is too many steps; at most {MOST_STEPS:,}, for example steps:2000")
        return Until("steps", steps)
    if what == "rounds":
        return Until("rounds", read_whole(amount, 1))
    if what == "time":
        return Until("time", read_positive_time(amount))
    if what == "accuracy":
        return Until("accuracy", read_share(amount, TINY))
    hint = near(what, ("converged", "steps", "rounds", "time", "accuracy"))
    raise UsageError(f"{text[:40]!r} is not a goal; for example {EXAMPLES}{hint}")
