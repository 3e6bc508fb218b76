"""Limits incoming traffic, and turns failures of the node into answers.

A flood of requests must not fill memory or starve the node: when all slots are in use, a call or stream is refused at
once and at little cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator

from ...wire.errors import PeerRefused
from ...wire.ids import PeerId, short
from ...wire.messages import MAX_CALL_BYTES, Refused, encode_message
from ...wire.types import Seconds
from ..base import Server
from .frames import FrameReader, FrameWriter, refuse_stream, serve_stream

MAX_CALLS = 128
MAX_CALLS_PER_PEER = 32
MAX_STREAMS = 64
MAX_STREAMS_PER_PEER = 16
ANSWER_LIMIT: Seconds = 60.0

logger = logging.getLogger(__name__)


class Slots:
    """Limits how many requests are served at once, in all and for one peer."""

    def __init__(self, total: int, per_peer: int) -> None:
        self._total = total
        self._per_peer = per_peer
        self._used: Counter[PeerId] = Counter()
        self._tasks: set[asyncio.Task[object]] = set()

    @contextlib.contextmanager
    def taken(self, peer: PeerId) -> Iterator[None]:
        """Hold a slot for the current task, which `cancel_all` can end; PeerRefused("busy") when none is free."""
        if len(self._tasks) >= self._total or self._used[peer] >= self._per_peer:
            raise PeerRefused("busy", "too much at once")
        task = asyncio.current_task()
        assert task is not None
        self._used[peer] += 1
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)
            self._used[peer] -= 1
            if not self._used[peer]:
                del self._used[peer]

    async def cancel_all(self, limit: Seconds) -> None:
        """Cancel the tasks that hold slots."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=limit)


class Incoming:
    """Calls the node's `Server` within its slots. No exception of the node leaves this class."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._calls = Slots(MAX_CALLS, MAX_CALLS_PER_PEER)
        self._streams = Slots(MAX_STREAMS, MAX_STREAMS_PER_PEER)

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        """The answer to a call, or an encoded Refused."""
        if len(request) > MAX_CALL_BYTES:
            self._server.misbehaved(peer, f"call of {len(request)} bytes")
            return encode_message(Refused("too large", f"{MAX_CALL_BYTES} bytes are allowed"))
        try:
            with self._calls.taken(peer):
                return await self._answer(peer, request)
        except PeerRefused as refusal:
            return encode_message(Refused(refusal.code, refusal.reason))

    async def _answer(self, peer: PeerId, request: bytes) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_LIMIT):
                answer = await self._server.answer(peer, request)
        except Exception:  # no bug of ours may end the service for others
            logger.exception("answering a call of %s failed", short(peer))
            raise PeerRefused("failed", "the peer could not answer; its log says why") from None
        if len(answer) > MAX_CALL_BYTES:
            logger.error("an answer of %d bytes to %s is over the limit", len(answer), short(peer))
            raise PeerRefused("failed", "the answer is too large")
        return answer

    async def stream(self, peer: PeerId, reader: FrameReader, writer: FrameWriter) -> None:
        """Serve one stream and close it."""
        try:
            with self._streams.taken(peer):
                await serve_stream(peer, reader, writer, self._server)
        except PeerRefused as refusal:
            await refuse_stream(writer, str(refusal))

    async def cancel_all(self, limit: Seconds) -> None:
        """Cancel everything that is being served."""
        await asyncio.gather(self._calls.cancel_all(limit), self._streams.cancel_all(limit))
