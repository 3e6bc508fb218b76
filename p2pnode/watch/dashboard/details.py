"""What the page asks for only while somebody looks at it: shards, whose work is in the weights, the latest rounds."""

from __future__ import annotations

import asyncio
import contextlib
import time

import msgspec
from aiohttp import web

from ...errors import LocalProblem, UsageError
from ...node.control import ControlRequest
from ...node.status import MergeRow
from ..show import Watched

LINEAGE_EVERY = 10.0  # seconds at least between two workings-out
LINEAGE_SHARE = 0.02  # of the time at most
MAX_SHARDS = 5000


class Lineage(msgspec.Struct, frozen=True):
    """Each author's share of what was added to each layer; `problem` says why it is not known."""

    time: float
    shares: dict[str, dict[str, float]] = {}
    problem: str = ""


class Details:
    """One node's answers. Working out the lineage reads every kept entry, so it is done seldom and shared."""

    def __init__(self, node: Watched) -> None:
        self._node = node
        self._lineage = Lineage(0.0)
        self._again_at = 0.0
        self._working = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/shards", self._shards),
            web.get("/api/journey", self._journey),
            web.get("/api/lineage", self._whose_work),
            web.get("/api/rounds", self._rounds),
        ]

    async def _shards(self, request: web.Request) -> web.Response:
        return _json(self._node.status().shards[:MAX_SHARDS])

    async def _journey(self, request: web.Request) -> web.Response:
        """One shard, with the visits it is known to have had."""
        try:
            answer = await self._node.obey(ControlRequest("shards", shard=request.query.get("shard", "")))
        except (LocalProblem, UsageError) as problem:
            raise web.HTTPNotFound(text=str(problem)) from None
        if len(answer.shards) != 1:
            raise web.HTTPNotFound(text="no such shard is known here")
        return _json(answer.shards[0])

    async def _whose_work(self, request: web.Request) -> web.Response:
        async with self._working:
            if time.monotonic() >= self._again_at:
                begun = time.monotonic()
                self._lineage = await self._work_out()
                took = time.monotonic() - begun
                self._again_at = time.monotonic() + max(LINEAGE_EVERY, took / LINEAGE_SHARE)
        return _json(self._lineage)

    async def _work_out(self) -> Lineage:
        try:
            answer = await self._node.obey(ControlRequest("blame"))
        except (LocalProblem, UsageError) as problem:
            return Lineage(time.time(), problem=str(problem))
        return Lineage(time.time(), answer.blame)

    async def _rounds(self, request: web.Request) -> web.Response:
        """The latest rounds, oldest first; none where nothing is learned."""
        merges: tuple[MergeRow, ...] = ()
        with contextlib.suppress(LocalProblem, UsageError):
            merges = (await self._node.obey(ControlRequest("log"))).merges
        return _json(merges)


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
