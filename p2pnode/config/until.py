"""When a node should stop training (`--until rounds:100`). `training/progress.py` knows whether it is time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..wire.errors import UsageError, near
from .units import TINY, read_positive_time, read_share, read_whole

EXAMPLES = "converged, converged:0.001, rounds:100, time:30m, accuracy:0.9"
THRESHOLD = 0.002  # of the smoothed update norm, below which a run has converged


@dataclass(frozen=True)
class Until:
    """What to stop at. `amount` is a number of rounds, seconds, an accuracy, or the threshold of the update norm."""

    what: Literal["converged", "rounds", "time", "accuracy"]
    amount: float

    def __str__(self) -> str:
        return f"{self.what}:{self.amount:g}"


def parse_until(text: str) -> Until:
    """Read `converged`, `rounds:N`, `time:30m` or `accuracy:0.9`; UsageError says what is wrong."""
    what, colon, amount = text.strip().lower().partition(":")
    if what == "converged":
        return Until("converged", read_share(amount, TINY) if colon else THRESHOLD)
    if what == "rounds":
        return Until("rounds", read_whole(amount, 1))
    if what == "time":
        return Until("time", read_positive_time(amount))
    if what == "accuracy":
        return Until("accuracy", read_share(amount, TINY))
    hint = near(what, ("converged", "rounds", "time", "accuracy"))
    raise UsageError(f"{text[:40]!r} is not a goal; for example {EXAMPLES}{hint}")
