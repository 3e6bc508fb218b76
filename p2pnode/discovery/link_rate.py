"""Measures the rate of a node's link from its exchanges, and derives how large an entry may be to fit it."""

from __future__ import annotations

LEAST_BYTES = 16_384  # smaller messages measure latency, not rate
SHARE = 0.25  # of a round that may be spent receiving
_KEEP = 0.8  # weight of earlier measurements
_SHORTEST = 1e-3  # seconds


def smoothed(rate: float | None, count: int, seconds: float, round_trip: float | None) -> float | None:
    """Return the smoothed rate after a transfer of `count` bytes, round trip included; small transfers do not count."""
    if count < LEAST_BYTES:
        return rate
    now = count / max(_SHORTEST, seconds - (round_trip or 0.0))
    return now if rate is None else _KEEP * rate + (1 - _KEEP) * now


class LinkRate:
    """Bytes per second, smoothed; None until a message was large enough to measure."""

    def __init__(self) -> None:
        self.rate: float | None = None

    def note(self, count: int, seconds: float, round_trip: float | None) -> None:
        """Record an exchange of `count` bytes."""
        self.rate = smoothed(self.rate, count, seconds, round_trip)

    def budget(self, round_seconds: float, group: int) -> int | None:
        """Return the largest entry, in bytes, such that a circle of `group` can receive each other's once a round."""
        return None if self.rate is None else int(SHARE * round_seconds * self.rate / max(1, group - 1))
