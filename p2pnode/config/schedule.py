"""The times of day at which a node may work (`--schedule 22:00-07:00`)."""

from __future__ import annotations

from dataclasses import dataclass

from ..wire.errors import UsageError

DAY = 24 * 60  # minutes
SPAN_EXAMPLE = "22:00-07:00, or several: 22:00-07:00,12:00-13:00"
MAX_SPANS = 24


@dataclass(frozen=True)
class Schedule:
    """Spans of minutes of the local day, each from its first minute to before its second."""

    spans: tuple[tuple[int, int], ...]

    def allows(self, minute: int) -> bool:
        """Whether `minute` is in one of the spans. A span that ends before it begins goes past midnight."""
        return any(_within(minute, begin, end) for begin, end in self.spans)

    def __str__(self) -> str:
        return ",".join(f"{_clock(begin)}-{_clock(end)}" for begin, end in self.spans)


def _within(minute: int, begin: int, end: int) -> bool:
    return begin <= minute < end if begin < end else minute >= begin or minute < end


def _clock(minute: int) -> str:
    return f"{minute // 60:02d}:{minute % 60:02d}"


def parse_schedule(text: str) -> Schedule:
    """Read `22:00-07:00`, or several spans with commas between them; UsageError says what is wrong."""
    written = [span.strip() for span in text.split(",")]
    if len(written) > MAX_SPANS:
        raise UsageError(f"{len(written)} spans are too many; {MAX_SPANS} are allowed")
    return Schedule(tuple(_span(span) for span in written))


def _span(text: str) -> tuple[int, int]:
    begin, dash, end = text.partition("-")
    first, last = _minute(begin), _minute(end)
    if not dash or first is None or last is None or first == DAY:
        raise UsageError(f"{text[:40]!r} is not a span of the day; for example {SPAN_EXAMPLE}")
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
