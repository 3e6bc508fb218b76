"""Pictures of a node, one a second, for any number of watchers. A slow watcher misses some and delays nobody.

They are also kept on disk, within a bound, so that the page shows the run's past after the node was started again. A
node without a page keeps its past too, with fewer pictures, so that a page opened later shows the whole run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncGenerator, Sequence

import msgspec

from ...storage.checked import read_or_set_aside, write_checked
from ...storage.files import Storage
from ...wire.control import ControlRequest
from ...wire.errors import LocalProblem, UsageError
from ...wire.status import MergeRow
from ..graph import PeerGraph, graph_of
from ..history import (
    SAVED_PICTURES,
    SAVED_ROWS,
    KeptHistory,
    PictureHistory,
    history_file,
    joined_rounds,
    pack_history,
    unpack_history,
)
from ..show import Watched

EVERY = 1.0  # seconds
SAVE_EVERY = 60.0
UNSEEN_EVERY = 10.0  # where no page is served
UNSEEN_SAVE_EVERY = 600.0
PAST_ROWS = 40_000  # peers and exchanges in all pictures of the past that a page loads: some megabytes


class Feed:
    """Takes a picture of a node every second while `run` runs, once for all watchers; keeps them in `storage`."""

    def __init__(self, node: Watched, storage: Storage | None = None, seen: bool = True) -> None:
        """`seen`: a page shows the pictures; otherwise they are only taken to be kept, and more seldom."""
        self._every, self._save_every = (EVERY, SAVE_EVERY) if seen else (UNSEEN_EVERY, UNSEEN_SAVE_EVERY)
        self._node = node
        self._storage = storage
        self._run = ""  # whose history was read
        self._rounds: dict[str, Sequence[MergeRow]] = {}  # by job; the node itself knows only the latest
        self._save_at = 0.0
        self._changed = asyncio.Condition()
        self._encode = msgspec.json.Encoder().encode
        self.history = PictureHistory() if seen else PictureHistory(SAVED_PICTURES, SAVED_ROWS)
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
            run = self._node.status().run
            if self._storage is not None and run:
                await self._keep(self._storage, run)  # pages ask for the past at the first picture with the run
            self.look()
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(self._every)

    # ---- on disk ----

    async def _keep(self, storage: Storage, run: str) -> None:
        """Read what is kept of the run, once; then write it now and then. What was not read is never overwritten."""
        if self._run == run:
            if time.monotonic() >= self._save_at:
                await self.save()
            return
        lost = "the page shows the run from now on"
        try:
            found = await asyncio.to_thread(read_or_set_aside, storage, history_file(run), unpack_history, lost)
        except LocalProblem as problem:
            logging.getLogger(__name__).warning("the history of the page cannot be read and is not kept: %s", problem)
            self._storage = None
            return
        self._put_before(found or KeptHistory())
        self._run, self._save_at = run, time.monotonic() + self._save_every

    def _put_before(self, kept: KeptHistory) -> None:
        self.history.put_before(kept.pictures)
        for job, rows in kept.rounds.items():
            self._rounds[job] = joined_rounds(rows, self._rounds.get(job, ()))

    async def save(self) -> None:
        """Write the history. A disk that cannot be written is no reason to stop."""
        if self._storage is None or not self._run:
            return
        self._save_at = time.monotonic() + self._save_every
        rounds = {job: await self.rounds(job) for job in self._node.status().jobs}
        pictures, storage, name = self.history.all(), self._storage, history_file(self._run)
        try:
            await asyncio.to_thread(lambda: write_checked(storage, name, pack_history(pictures, rounds)))
        except LocalProblem as problem:
            logging.getLogger(__name__).warning("the history of the page was not saved: %s", problem)

    async def rounds(self, job: str) -> Sequence[MergeRow]:
        """The rounds of a job that are known, also of earlier starts; empty where nothing is trained."""
        with contextlib.suppress(LocalProblem, UsageError):
            latest = (await self._node.execute(ControlRequest("log", job=job))).merges
            self._rounds[job] = joined_rounds(self._rounds.get(job, ()), latest)
        return self._rounds.get(job, ())

    # ---- for watchers ----

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
