"""Pictures of a node, one a second, for any number of watchers; who is slow misses some and never holds up the rest."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator

import msgspec

from ..graph import PeerGraph, graph_of
from ..history import PictureHistory
from ..show import Watched

EVERY = 1.0  # seconds
PAST_ROWS = 40_000  # peers and exchanges in all that a page gets of the past: some megabytes


class Feed:
    """Looks at a node while `run` runs. What it shows is made once, however many look."""

    def __init__(self, node: Watched) -> None:
        self._node = node
        self._changed = asyncio.Condition()
        self._encode = msgspec.json.Encoder().encode
        self.history = PictureHistory()
        self.newest: bytes = b""
        self.watchers = 0

    def look(self) -> PeerGraph:
        graph = graph_of(self._node.status(), time.time())
        self.history.add(graph)
        self.newest = self._encode(graph)
        return graph

    async def run(self) -> None:
        """A picture every second until cancelled; others are asked how they are doing only while somebody watches."""
        while True:
            if self.watchers:
                await self._node.look_around()
            self.look()
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(EVERY)

    async def pictures(self) -> AsyncGenerator[bytes, None]:
        """Each new picture as JSON, beginning with the newest there is."""
        self.watchers += 1
        try:
            if self.newest:
                yield self.newest
            while True:
                async with self._changed:
                    await self._changed.wait()
                yield self.newest
        finally:
            self.watchers -= 1

    def past(self) -> bytes:
        """What is remembered, evenly thinned to what a page loads at once, the newest among it; a JSON list."""
        kept = self.history.all()
        rows = sum(len(graph.peers) + len(graph.exchanges) for graph in kept)
        every = max(1, math.ceil(rows / PAST_ROWS))
        return self._encode(kept[::-1][::every][::-1])
