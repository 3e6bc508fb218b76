"""When a node has learned enough: what `--until` says, and whether it has come to that. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from ..wire.errors import UsageError

EXAMPLES = "converged, converged:0.001, rounds:100, time:30m, accuracy:0.9"
THRESHOLD = 0.002  # of the smoothed update norm, below which a run has converged
CALM_ROUNDS = 10  # for which it must stay there
SMOOTHING = 0.9  # of the update norm, per round
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = re.compile(r"([0-9.]+)\s*([a-z]*)")


@dataclass(frozen=True)
class Until:
    """What to stop at. `amount` is a number of rounds, seconds, an accuracy, or the threshold of the update norm."""

    what: Literal["converged", "rounds", "time", "accuracy"]
    amount: float

    def __str__(self) -> str:
        return f"{self.what}:{self.amount:g}"


@dataclass(frozen=True)
class Reached:
    """How far a node has come."""

    rounds: int
    seconds: float  # of learning since this start
    accuracy: float | None
    update_norm: float | None  # smoothed
    calm_rounds: int  # for which the smoothed norm has been under the threshold


def parse_until(text: str) -> Until:
    """`converged`, `rounds:N`, `time:30m` or `accuracy:0.9`; UsageError says what is wrong with anything else."""
    what, colon, written = text.strip().lower().partition(":")
    if what == "converged":
        return Until("converged", _number(text, written, 1.0) if colon else THRESHOLD)
    if what == "rounds":
        return Until("rounds", _whole(text, written))
    if what == "time":
        return Until("time", _seconds(text, written))
    if what == "accuracy":
        return Until("accuracy", _number(text, written, 1.0))
    raise UsageError(f"--until {text[:40]!r} is not known; for example {EXAMPLES}")


def reached(until: Until, now: Reached) -> str:
    """Why it is time to stop, or "" while it is not."""
    match until.what:
        case "rounds" if now.rounds >= until.amount:
            return f"{now.rounds} rounds are done"
        case "time" if now.seconds >= until.amount:
            return f"{now.seconds:.0f} s have passed"
        case "accuracy" if now.accuracy is not None and now.accuracy >= until.amount:
            return f"an accuracy of {now.accuracy:.1%} is reached"
        case "converged" if now.calm_rounds >= CALM_ROUNDS and now.update_norm is not None:
            return f"the run has converged: updates change the weights by {now.update_norm:.2%} only"
        case _:
            return ""


class Monitor:
    """The convergence monitor: smooths the relative norm of updates, and counts how long it has been small."""

    def __init__(self, threshold: float = THRESHOLD) -> None:
        self._threshold = threshold
        self.norm: float | None = None
        self.calm_rounds = 0

    def note(self, update_norm: float) -> None:
        """One round's update."""
        self.norm = update_norm if self.norm is None else SMOOTHING * self.norm + (1 - SMOOTHING) * update_norm
        self.calm_rounds = self.calm_rounds + 1 if self.norm < self._threshold else 0


def _number(text: str, written: str, most: float) -> float:
    try:
        number = float(written)
    except ValueError:
        number = math.nan
    if not 0 < number <= most:
        raise UsageError(f"--until {text[:40]!r} needs a number above 0 and at most {most:g}; for example {EXAMPLES}")
    return number


def _whole(text: str, written: str) -> float:
    if not written.strip().isdecimal() or not 0 < int(written) < 10**9:
        raise UsageError(f"--until {text[:40]!r} needs a whole number above 0; for example {EXAMPLES}")
    return float(int(written))


def _seconds(text: str, written: str) -> float:
    found = _TIME.fullmatch(written.strip())
    unit = _UNITS.get(found.group(2)) if found else None
    try:
        seconds = float(found.group(1)) * unit if found and unit else math.nan
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 365 * 86400:
        raise UsageError(f"--until {text[:40]!r} needs a time such as 90s, 30m, 2h or 1d")
    return seconds
