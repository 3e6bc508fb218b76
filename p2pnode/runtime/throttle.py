"""How many bytes a second may go up and come down: every call and stream of the node passes here.

A limit makes things wait and never breaks them. A call may be as large as it is: the next ones wait for it. Streams go
in small pieces, and only so many at once as the limit can feed: a peer gives up a stream that barely moves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ..network.base import Clock, Seconds
from ..wire.errors import PeerRefused
from .bucket import Bucket
from .limits import Rules

LOOK_AGAIN: Seconds = 0.5  # while waiting: limits can be changed meanwhile
SHORTEST: Seconds = 1e-3  # wait that is worth one
PATIENCE: Seconds = 3.0  # for which a peer's call or stream waits, before it is told to come later
STREAM_RATE = 32_000  # bytes a second that a stream should have: twice what a receiver insists on


class Throttle:
    """One direction. Keeps network.base.Throttle for streams."""

    def __init__(self, clock: Clock) -> None:
        self._bucket = Bucket()
        self._clock = clock
        self._streams = 0

    def limit(self, rate: float | None) -> None:
        self._bucket.set_rate(rate, self._clock.monotonic())

    def piece(self, most: int) -> int:
        return self._bucket.piece(most)

    def charge(self, count: int) -> None:
        """These bytes go or went, whether or not it was their turn."""
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
    """Both directions of one node."""

    def __init__(self, clock: Clock) -> None:
        self.up = Throttle(clock)
        self.down = Throttle(clock)

    def follow(self, rules: Rules) -> None:
        self.up.limit(rules.max_upload)
        self.down.limit(rules.max_download)

    async def ready(self) -> None:
        """Before a call of ours, whose answer may be large."""
        await self.up.ready()
        await self.down.ready()
