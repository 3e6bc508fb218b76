"""How far a node may use the machine it is a guest on: when it rests, how hard it works. Pure.

`resting` says why a node rests, or "" while it may work. Everything it needs to know of the machine comes in.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..config.options import LimitOptions

BUSY_SHARE = 0.25  # of the machine, used by others, or
BUSY_CORES = 1.0  # so many cores, whichever is less, for
BUSY_AFTER = 3.0  # seconds: then somebody is using it
QUIET_AFTER = 30.0  # seconds at less than half of that: then nobody does any more
LEAST_DUTY = 0.02  # of the time, in local steps: however little a node may use, it goes on


@dataclass(frozen=True)
class MachineSituation:
    """What the rules are held against."""

    minute: int = 0  # of the local day
    paused: bool = False  # by the user
    on_battery: bool = False
    in_use: bool = False  # the machine, by others


def resting(now: MachineSituation, limits: LimitOptions) -> str:
    """Why the node rests, or "" while it may work; the user's own word comes first."""
    if now.paused:
        return "paused by you"
    if limits.schedule is not None and not limits.schedule.allows(now.minute):
        return f"outside {limits.schedule}"
    if limits.pause_on_battery and now.on_battery:
        return "on battery"
    if limits.idle_only and now.in_use:
        return "the machine is in use"
    return ""


@dataclass(frozen=True)
class Use:
    """Whether others use the machine, and since when their load has spoken against that."""

    in_use: bool = False
    since: float | None = None


def noticed(use: Use, others: float, cores: int, now: float) -> Use:
    """What a look at the load makes of it. `others` is the share of the machine that others use, 0 to 1.

    It takes BUSY_AFTER seconds of load without a break to be in use, and QUIET_AFTER of quiet to be free again.
    """
    most = min(BUSY_SHARE, BUSY_CORES / cores)
    against = others < most / 2 if use.in_use else others > most
    if not against:
        return Use(use.in_use)
    since = now if use.since is None else use.since
    enough = now - since >= (QUIET_AFTER if use.in_use else BUSY_AFTER)
    return Use(not use.in_use) if enough else Use(use.in_use, since)


def first_duty(share: float | None, cores: int) -> float:
    """The part of the time for local steps with which one busy thread comes to `share` of the machine: the most."""
    return 1.0 if share is None else max(LEAST_DUTY, min(1.0, share * cores))


def next_duty(duty: float, share: float | None, used: float) -> float:
    """The duty after this node `used` so much of the machine. Half way there at a time: measurements are noisy."""
    if share is None:
        return 1.0
    wanted = duty * min(2.0, max(0.25, share / max(used, 1e-3)))
    return max(LEAST_DUTY, min(1.0, (duty + wanted) / 2))


def pause_after(work: float, duty: float) -> float:
    """Seconds to wait after so many of work, so that work takes `duty` of the time."""
    return work * (1.0 - duty) / duty
