"""What the page asks for only while somebody looks at it: shards, lineage, the latest rounds, similarities.

All are about one job: `?job=NAME`, or the run's first job; shards of all jobs where none is named.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

import msgspec
from aiohttp import web

from ...wire.control import ControlRequest
from ...wire.errors import LocalProblem, UsageError
from ..show import Watched
from .feed import Feed

EVERY = 10.0  # seconds between two computations, at least
SHARE = 0.02  # of the time spent computing, at most
MAX_SHARDS = 5000

T = TypeVar("T")


class Lineage(msgspec.Struct, frozen=True):
    """Each author's share of what was added to each layer; `problem` is the reason where it is not known."""

    time: float
    shares: dict[str, dict[str, float]] = {}
    problem: str = ""


class SimilarityRows(msgspec.Struct, frozen=True):
    """How similar the models of any two peers are, in per cent, by the fingerprints they announce."""

    peers: tuple[str, ...] = ()
    table: list[list[int]] = []


class Cached(Generic[T]):
    """A value that is expensive to compute: computed on demand, rarely, and once for all who ask."""

    def __init__(self, compute: Callable[[], Awaitable[T]]) -> None:
        self._compute = compute
        self._working = asyncio.Lock()
        self._again_at = 0.0
        self._found: T | None = None

    async def get(self) -> T:
        async with self._working:
            begun = time.monotonic()
            if self._found is None or begun >= self._again_at:
                self._found = await self._compute()
                now = time.monotonic()
                self._again_at = now + max(EVERY, (now - begun) / SHARE)
            return self._found


class Details:
    """Serves the details of one node."""

    def __init__(self, node: Watched, feed: Feed) -> None:
        self._node = node
        self._feed = feed
        self._lineage: dict[str, Cached[Lineage]] = {}  # by job
        self._similarity: dict[str, Cached[SimilarityRows]] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/shards", self._shards),
            web.get("/api/journey", self._journey),
            web.get("/api/lineage", self._shares),
            web.get("/api/similarity", self._similarities),
            web.get("/api/rounds", self._rounds),
        ]

    async def _shards(self, request: web.Request) -> web.Response:
        job = _job(request)
        return _json([row for row in self._node.status().shards if not job or row.job in ("", job)][:MAX_SHARDS])

    async def _journey(self, request: web.Request) -> web.Response:
        """One shard with its known visits."""
        try:
            answer = await self._node.execute(
                ControlRequest("shards", shard=request.query.get("shard", ""), job=_job(request))
            )
        except (LocalProblem, UsageError) as problem:
            raise web.HTTPNotFound(text=str(problem)) from None
        if len(answer.shards) != 1:
            raise web.HTTPNotFound(text="no such shard is known here")
        return _json(answer.shards[0])

    async def _shares(self, request: web.Request) -> web.Response:
        job = self._known_job(request)
        cached = self._lineage.setdefault(job, Cached(lambda: self._compute_lineage(job)))
        return _json(await cached.get())

    async def _similarities(self, request: web.Request) -> web.Response:
        job = self._known_job(request)
        return _json(await self._similarity.setdefault(job, Cached(lambda: self._compute_similarity(job))).get())

    def _known_job(self, request: web.Request) -> str:
        """The job that is meant, "" for the first. Others are not found, so that no name is remembered for nothing."""
        job = _job(request)
        if job and job not in self._node.status().jobs:
            raise web.HTTPNotFound(text="no such job runs here")
        return job

    async def _compute_lineage(self, job: str) -> Lineage:
        """Reads every kept entry."""
        try:
            answer = await self._node.execute(ControlRequest("blame", job=job))
        except (LocalProblem, UsageError) as problem:
            return Lineage(time.time(), problem=str(problem))
        return Lineage(time.time(), answer.blame)

    async def _compute_similarity(self, job: str) -> SimilarityRows:
        try:
            answer = await self._node.execute(ControlRequest("fingerprints", job=job))
        except (LocalProblem, UsageError):
            return SimilarityRows()
        return await asyncio.to_thread(_similarity_rows, answer.fingerprints)

    async def _rounds(self, request: web.Request) -> web.Response:
        """The known rounds, oldest first; empty where nothing is trained."""
        return _json(await self._feed.rounds(_job(request) or next(iter(self._node.status().jobs), "")))


def _similarity_rows(fingerprints: Mapping[str, bytes]) -> SimilarityRows:
    from ..similarity import similarities_of  # imports numpy, which a node that does not train need not load

    found = similarities_of(fingerprints)
    return SimilarityRows(found.peers, (100 * found.table).round().astype(int).tolist())


def _job(request: web.Request) -> str:
    return request.query.get("job", "")


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
