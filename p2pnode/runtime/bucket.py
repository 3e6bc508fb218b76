"""A limit on bytes a second: a token bucket that lets a large message through and makes the next ones wait. Pure."""

from __future__ import annotations

BURST = 1.0  # seconds' worth that may go at once
PIECES = 4  # of a stream, that go in a second, so that it flows


class Bucket:
    """What was spent and is not paid off yet. Without a rate nothing ever waits."""

    def __init__(self, rate: float | None = None) -> None:
        self._rate = rate
        self._debt = 0.0  # bytes
        self._at = 0.0

    @property
    def rate(self) -> float | None:
        return self._rate

    def set_rate(self, rate: float | None, now: float) -> None:
        """From `now` on; what is owed stays owed, unless there is no limit any more."""
        self._pay(now)
        self._rate = rate

    def spend(self, count: int, now: float) -> None:
        """These bytes go, or went."""
        self._pay(now)
        if self._rate is not None:
            self._debt += count

    def wait(self, now: float) -> float:
        """Seconds until the next bytes may go."""
        self._pay(now)
        return 0.0 if self._rate is None else max(0.0, self._debt / self._rate - BURST)

    def piece(self, most: int) -> int:
        """How much of a stream to send at once, at most `most`."""
        return most if self._rate is None else max(1, min(most, int(self._rate / PIECES)))

    def _pay(self, now: float) -> None:
        rate = self._rate
        self._debt = 0.0 if rate is None else max(0.0, self._debt - rate * max(0.0, now - self._at))
        self._at = max(self._at, now)
