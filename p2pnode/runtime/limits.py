"""How far a node may use the machine it is a guest on: when it rests, how hard it works. Pure.

`resting` says why a node rests, or "" while it may work. Everything it needs to know of the machine comes in.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..wire.errors import UsageError

DAY = 24 * 60  # minutes
SPAN_EXAMPLE = "22:00-07:00, or several: 22:00-07:00,12:00-13:00"
MAX_SPANS = 24
BUSY_SHARE = 0.25  # of the machine, used by others, or
BUSY_CORES = 1.0  # so many cores, whichever is less, for
BUSY_AFTER = 3.0  # seconds: then somebody is using it
QUIET_AFTER = 30.0  # seconds at less than half of that: then nobody does any more
LEAST_DUTY = 0.02  # of the time, in local steps: however little a node may use, it goes on


@dataclass(frozen=True)
class Schedule:
    """The times of day at which a node may work: spans of minutes, each from its first to before its second."""

    spans: tuple[tuple[int, int], ...]

    def allows(self, minute: int) -> bool:
        """Whether `minute` of the local day is in one of the spans; one that ends before it begins wraps midnight."""
        return any(_within(minute, begin, end) for begin, end in self.spans)

    def __str__(self) -> str:
        return ",".join(f"{_clock(begin)}-{_clock(end)}" for begin, end in self.spans)


def _within(minute: int, begin: int, end: int) -> bool:
    return begin <= minute < end if begin < end else minute >= begin or minute < end


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


def parse_schedule(text: str) -> Schedule:
    """`22:00-07:00`, several with commas between; UsageError says what is wrong with anything else."""
    written = [span.strip() for span in text.split(",")]
    if len(written) > MAX_SPANS:
        raise UsageError(f"{len(written)} spans are too many; {MAX_SPANS} are allowed")
    return Schedule(tuple(_span(span) for span in written))


def _span(text: str) -> tuple[int, int]:
    begin, dash, end = text.partition("-")
    first, last = _minute(begin), _minute(end)
    if not dash or first is None or last is None or first == DAY:
        raise UsageError(f"{text[:40]!r} is not a span of the day; write {SPAN_EXAMPLE}")
    if first == last:
        raise UsageError(f"{text[:40]!r} is empty; for the whole day leave the schedule out")
    return first, last


def _minute(text: str) -> int | None:
    hours, colon, minutes = text.strip().partition(":")
    digits = all(part.isascii() and part.isdecimal() and len(part) <= 2 for part in (hours, minutes))
    if not colon or not digits or len(minutes) != 2 or int(minutes) > 59:
        return None
    minute = 60 * int(hours) + int(minutes)
    return minute if minute <= DAY else None


@dataclass(frozen=True)
class Rules:
    """What the user allows. None is no limit."""

    max_upload: float | None = None  # bytes a second
    max_download: float | None = None
    max_cpu: float | None = None  # share of the machine, 0 to 1
    pause_on_battery: bool = False
    idle_only: bool = False
    schedule: Schedule | None = None


@dataclass(frozen=True)
class MachineSituation:
    """What the rules are held against."""

    minute: int = 0  # of the local day
    paused: bool = False  # by the user
    on_battery: bool = False
    in_use: bool = False  # the machine, by others


def resting(now: MachineSituation, rules: Rules) -> str:
    """Why the node rests, or "" while it may work; the user's own word comes first."""
    if now.paused:
        return "paused by you"
    if rules.schedule is not None and not rules.schedule.allows(now.minute):
        return f"outside {rules.schedule}"
    if rules.pause_on_battery and now.on_battery:
        return "on battery"
    if rules.idle_only and now.in_use:
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
