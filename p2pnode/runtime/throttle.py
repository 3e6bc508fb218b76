"""Keeps to the limits on upload and download: every call and stream of the node passes here.

A limit makes things wait and never breaks them. A call is sent whole, and the next ones wait for it. Streams are sent
in small pieces, and only as many at once as the limit can feed, because a peer gives up a stream that barely moves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ..network.base import Clock
from ..wire.errors import PeerRefused
from ..wire.status import LimitOptions
from ..wire.types import Seconds

BURST = 1.0  # this many seconds' worth of bytes may go at once
PIECES = 4  # pieces of a stream in a second, so that it flows


class Bucket:
    """A token bucket: bytes that were sent and are not paid off yet. Without a rate nothing ever waits."""

    def __init__(self, rate: float | None = None) -> None:
        self._rate = rate
        self._debt = 0.0  # bytes
        self._at = 0.0

    @property
    def rate(self) -> float | None:
        return self._rate

    def set_rate(self, rate: float | None, now: float) -> None:
        """Set the rate from `now` on. The debt stays, unless there is no limit any more."""
        self._pay(now)
        self._rate = rate

    def spend(self, count: int, now: float) -> None:
        """Count bytes that are sent now or were sent."""
        self._pay(now)
        if self._rate is not None:
            self._debt += count

    def wait(self, now: float) -> float:
        """Seconds until the next bytes may go."""
        self._pay(now)
        return 0.0 if self._rate is None else max(0.0, self._debt / self._rate - BURST)

    def piece(self, maximum: int) -> int:
        """How many bytes of a stream to send at once, at most `maximum`."""
        return maximum if self._rate is None else max(1, min(maximum, int(self._rate / PIECES)))

    def _pay(self, now: float) -> None:
        rate = self._rate
        self._debt = 0.0 if rate is None else max(0.0, self._debt - rate * max(0.0, now - self._at))
        self._at = max(self._at, now)


LOOK_AGAIN: Seconds = 0.5  # while waiting, because the limits can be changed meanwhile
SHORTEST: Seconds = 1e-3  # shorter waits are skipped
PATIENCE: Seconds = 3.0  # a peer's call or stream waits this long, then it is asked to come later
STREAM_RATE = 32_000  # bytes a second that a stream should have: twice what a receiver insists on


class Throttle:
    """The limit on one direction; implements network.base.StreamThrottle."""

    def __init__(self, clock: Clock) -> None:
        self._bucket = Bucket()
        self._clock = clock
        self._streams = 0

    def limit(self, rate: float | None) -> None:
        self._bucket.set_rate(rate, self._clock.monotonic())

    def piece(self, maximum: int) -> int:
        return self._bucket.piece(maximum)

    def charge(self, count: int) -> None:
        """Count bytes that are sent whether or not it is their turn."""
        self._bucket.spend(count, self._clock.monotonic())

    async def spend(self, count: int) -> None:
        self.charge(count)
        await self.ready()

    async def ready(self, patience: Seconds | None = None) -> None:
        """Wait until the next bytes may go; PeerRefused when that takes longer than `patience`."""
        while (wait := self._bucket.wait(self._clock.monotonic())) > SHORTEST:
            if patience is not None and wait > patience:
                raise PeerRefused("busy", "its limit is used up for now; ask again later")
            await asyncio.sleep(min(wait, LOOK_AGAIN))

    @contextlib.asynccontextmanager
    async def turn(self, patience: Seconds | None = PATIENCE) -> AsyncIterator[None]:
        """Hold one of the streams that the limit can feed; PeerRefused when none is free within `patience`."""
        begun = self._clock.monotonic()
        while self._bucket.rate is not None and self._streams >= max(1, self._bucket.rate // STREAM_RATE):
            if patience is not None and self._clock.monotonic() - begun > patience:
                raise PeerRefused("busy", "its limit feeds no further stream now; ask again later")
            await asyncio.sleep(LOOK_AGAIN)
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1


class Throttles:
    """The limits on both directions of one node."""

    def __init__(self, clock: Clock) -> None:
        self.up = Throttle(clock)
        self.down = Throttle(clock)

    def follow(self, limits: LimitOptions) -> None:
        self.up.limit(limits.max_upload)
        self.down.limit(limits.max_download)

    async def ready(self) -> None:
        """Wait before an own call, whose answer may be large."""
        await self.up.ready()
        await self.down.ready()
