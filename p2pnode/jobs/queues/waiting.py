"""How the loops of a queues job wait: for something to happen, at most for a slice of time."""

from __future__ import annotations

import asyncio
import contextlib

from ...wire.types import Seconds

SLICE: Seconds = 0.5  # how long a loop with nothing to do waits before it looks again


class Signal:
    """Something that one loop waits for. One that comes while nobody waits is not lost."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def give(self) -> None:
        self._event.set()

    async def wait(self, limit: Seconds = SLICE) -> None:
        """Until it was given since the last time, at most for `limit` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._event.wait()
        self._event.clear()
