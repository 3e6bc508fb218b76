"""Pictures of a node, one a second, for any number of watchers; who is slow misses some and never holds up the rest."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import msgspec

from ...node.status import Status
from ..graph import PeerGraph, graph_of
from ..history import History

EVERY = 1.0  # seconds


class Feed:
    """Looks at a node while `run` runs. What it shows is made once, however many look."""

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status
        self._changed = asyncio.Condition()
        self._encode = msgspec.json.Encoder().encode
        self.history = History()
        self.newest: bytes = b""

    def look(self) -> PeerGraph:
        graph = graph_of(self._status(), time.time())
        self.history.add(graph)
        self.newest = self._encode(graph)
        return graph

    async def run(self) -> None:
        """A picture every second until cancelled."""
        while True:
            self.look()
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(EVERY)

    async def pictures(self) -> AsyncIterator[bytes]:
        """Each new picture as JSON, beginning with the newest there is."""
        if self.newest:
            yield self.newest
        while True:
            async with self._changed:
                await self._changed.wait()
            yield self.newest

    def past(self) -> bytes:
        """All that is remembered, as a JSON list."""
        return self._encode(self.history.all())
