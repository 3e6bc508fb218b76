"""The rules by which a node shares the machine with its owner: when it rests and how hard it works.

Everything the rules need to know about the machine is passed in (`limiter.py` does that).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..config.schedule import parse_schedule
from ..wire.status import LimitOptions

BUSY_SHARE = 0.25  # the machine is in use when other programs take more than this share of it,
BUSY_CORES = 1.0  # or more than this many cores, whichever is less,
BUSY_AFTER = 3.0  # for this many seconds,
QUIET_AFTER = 30.0  # until they take less than half of that for this many seconds
LEAST_DUTY = 0.02  # share of the time spent on local steps, however little the node may use: training must go on


@dataclass(frozen=True)
class MachineSituation:
    """What the rules need to know about the machine."""

    minute: int = 0  # of the local day
    paused: bool = False  # by the user
    on_battery: bool = False
    in_use: bool = False  # the machine, by others


def resting(now: MachineSituation, limits: LimitOptions) -> str:
    """The reason why the node rests, or "" while it may work. A pause by the user comes before the rules."""
    if now.paused:
        return "paused by you"
    if limits.schedule and not parse_schedule(limits.schedule).allows(now.minute):
        return f"outside {limits.schedule}"
    if limits.pause_on_battery and now.on_battery:
        return "on battery"
    if limits.idle_only and now.in_use:
        return "the machine is in use"
    return ""


@dataclass(frozen=True)
class Use:
    """Whether others use the machine, and since when their load has suggested the opposite."""

    in_use: bool = False
    since: float | None = None


def noticed(use: Use, others: float, cores: int, now: float) -> Use:
    """The new state after a measurement. `others` is the share of the machine that other programs use, 0 to 1.

    The machine counts as in use after BUSY_AFTER seconds of load without a break, as free after QUIET_AFTER of quiet.
    """
    threshold = min(BUSY_SHARE, BUSY_CORES / cores)
    opposite = others < threshold / 2 if use.in_use else others > threshold
    if not opposite:
        return Use(use.in_use)
    since = now if use.since is None else use.since
    long_enough = now - since >= (QUIET_AFTER if use.in_use else BUSY_AFTER)
    return Use(not use.in_use) if long_enough else Use(use.in_use, since)


def first_duty(share: float | None, cores: int) -> float:
    """The share of the time to spend on local steps so that one busy thread uses `share` of the machine."""
    return 1.0 if share is None else max(LEAST_DUTY, min(1.0, share * cores))


def next_duty(duty: float, share: float | None, used: float) -> float:
    """The duty after this node `used` a share of the machine. It goes half the way, because measurements are noisy."""
    if share is None:
        return 1.0
    wanted = duty * min(2.0, max(0.25, share / max(used, 1e-3)))
    return max(LEAST_DUTY, min(1.0, (duty + wanted) / 2))


def pause_after(work: float, duty: float) -> float:
    """Seconds to wait after `work` seconds of work, so that work takes `duty` of the time."""
    return work * (1.0 - duty) / duty
