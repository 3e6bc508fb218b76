"""What the page asks for only while somebody looks at it: shards, lineage, the latest rounds, who is like whom."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

import msgspec
from aiohttp import web

from ...wire.control import ControlRequest
from ...wire.errors import LocalProblem, UsageError
from ...wire.status import MergeRow
from ..show import Watched

EVERY = 10.0  # seconds at least between two workings-out
SHARE = 0.02  # of the time at most
MAX_SHARDS = 5000

T = TypeVar("T")


class Lineage(msgspec.Struct, frozen=True):
    """Each author's share of what was added to each layer; `problem` says why it is not known."""

    time: float
    shares: dict[str, dict[str, float]] = {}
    problem: str = ""


class SimilarityRows(msgspec.Struct, frozen=True):
    """How alike the models of any two peers are, in per cent, by the fingerprints they announce."""

    peers: tuple[str, ...] = ()
    table: list[list[int]] = []


class Seldom(Generic[T]):
    """What costs something to work out: done when it is asked for, seldom, and once for all who ask."""

    def __init__(self, work_out: Callable[[], Awaitable[T]]) -> None:
        self._work_out = work_out
        self._working = asyncio.Lock()
        self._again_at = 0.0
        self._found: T | None = None

    async def get(self) -> T:
        async with self._working:
            begun = time.monotonic()
            if self._found is None or begun >= self._again_at:
                self._found = await self._work_out()
                now = time.monotonic()
                self._again_at = now + max(EVERY, (now - begun) / SHARE)
            return self._found


class Details:
    """One node's answers."""

    def __init__(self, node: Watched) -> None:
        self._node = node
        self._lineage = Seldom(self._work_out_lineage)
        self._likeness = Seldom(self._work_out_likeness)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/shards", self._shards),
            web.get("/api/journey", self._journey),
            web.get("/api/lineage", self._whose_work),
            web.get("/api/likeness", self._who_is_like_whom),
            web.get("/api/rounds", self._rounds),
        ]

    async def _shards(self, request: web.Request) -> web.Response:
        return _json(self._node.status().shards[:MAX_SHARDS])

    async def _journey(self, request: web.Request) -> web.Response:
        """One shard, with the visits it is known to have had."""
        try:
            answer = await self._node.carry_out(ControlRequest("shards", shard=request.query.get("shard", "")))
        except (LocalProblem, UsageError) as problem:
            raise web.HTTPNotFound(text=str(problem)) from None
        if len(answer.shards) != 1:
            raise web.HTTPNotFound(text="no such shard is known here")
        return _json(answer.shards[0])

    async def _whose_work(self, request: web.Request) -> web.Response:
        return _json(await self._lineage.get())

    async def _who_is_like_whom(self, request: web.Request) -> web.Response:
        return _json(await self._likeness.get())

    async def _work_out_lineage(self) -> Lineage:
        """Reads every kept entry."""
        try:
            answer = await self._node.carry_out(ControlRequest("blame"))
        except (LocalProblem, UsageError) as problem:
            return Lineage(time.time(), problem=str(problem))
        return Lineage(time.time(), answer.blame)

    async def _work_out_likeness(self) -> SimilarityRows:
        try:
            answer = await self._node.carry_out(ControlRequest("fingerprints"))
        except (LocalProblem, UsageError):
            return SimilarityRows()
        return await asyncio.to_thread(_likeness, answer.fingerprints)

    async def _rounds(self, request: web.Request) -> web.Response:
        """The latest rounds, oldest first; none where nothing is learned."""
        merges: tuple[MergeRow, ...] = ()
        with contextlib.suppress(LocalProblem, UsageError):
            merges = (await self._node.carry_out(ControlRequest("log"))).merges
        return _json(merges)


def _likeness(fingerprints: Mapping[str, bytes]) -> SimilarityRows:
    from ..similarity import similarities_of  # numpy, which a node that only meets others does not need

    found = similarities_of(fingerprints)
    return SimilarityRows(found.peers, (100 * found.table).round().astype(int).tolist())


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
