"""Pictures of a node, one a second, for any number of watchers. A slow watcher misses some and delays nobody."""

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
PAST_ROWS = 40_000  # peers and exchanges in all pictures of the past that a page loads: some megabytes


class Feed:
    """Takes a picture of a node every second while `run` runs, once for all watchers."""

    def __init__(self, node: Watched) -> None:
        self._node = node
        self._changed = asyncio.Condition()
        self._encode = msgspec.json.Encoder().encode
        self.history = PictureHistory()
        self.latest: bytes = b""
        self.watchers = 0

    def look(self) -> PeerGraph:
        """Take a picture now."""
        graph = graph_of(self._node.status(), time.time())
        self.history.add(graph)
        self.latest = self._encode(graph)
        return graph

    async def run(self) -> None:
        """Take a picture every second until cancelled. Peers are asked how they get on only while somebody watches."""
        while True:
            if self.watchers:
                await self._node.look_around()
            self.look()
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(EVERY)

    async def pictures(self) -> AsyncGenerator[bytes, None]:
        """Each new picture as JSON, beginning with the latest there is."""
        self.watchers += 1
        try:
            if self.latest:
                yield self.latest
            while True:
                async with self._changed:
                    await self._changed.wait()
                yield self.latest
        finally:
            self.watchers -= 1

    def past(self) -> bytes:
        """The remembered pictures as a JSON list, thinned evenly to what a page can load; the latest is among them."""
        kept = self.history.all()
        rows = sum(len(graph.peers) + len(graph.exchanges) for graph in kept)
        every = max(1, math.ceil(rows / PAST_ROWS))
        return self._encode(kept[::-1][::every][::-1])
