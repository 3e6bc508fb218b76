"""How much a node's link bears, by what its exchanges take; and what a round's message may be to stay within that."""

from __future__ import annotations

LEAST_BYTES = 16_384  # smaller messages tell of delay, not of rate
SHARE = 0.25  # of a round, for all that comes in during it
_KEEP = 0.8  # of what earlier exchanges said
_SHORTEST = 1e-3  # seconds


def smoothed(rate: float | None, count: int, seconds: float, round_trip: float | None) -> float | None:
    """The rate after `count` bytes took so long, the usual round trip among it; few bytes do not change it."""
    if count < LEAST_BYTES:
        return rate
    now = count / max(_SHORTEST, seconds - (round_trip or 0.0))
    return now if rate is None else _KEEP * rate + (1 - _KEEP) * now


class LinkRate:
    """Bytes a second, smoothed; None before a message was large enough to tell."""

    def __init__(self) -> None:
        self.rate: float | None = None

    def note(self, count: int, seconds: float, round_trip: float | None) -> None:
        """An exchange of `count` bytes took so long."""
        self.rate = smoothed(self.rate, count, seconds, round_trip)

    def budget(self, round_seconds: float, group: int) -> int | None:
        """The most an entry should be, when each of a circle of `group` receives all others' once a round."""
        return None if self.rate is None else int(SHARE * round_seconds * self.rate / max(1, group - 1))
