"""Incoming traffic: how much of it at once, and the node's failures turned into answers.

A flood must not grow memory or starve the node: beyond its slots a call or stream is refused, at once and cheaply.
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
    """How many things may go on at once, in all and for one peer."""

    def __init__(self, total: int, per_peer: int) -> None:
        self._total = total
        self._per_peer = per_peer
        self._used: Counter[PeerId] = Counter()
        self._tasks: set[asyncio.Task[object]] = set()

    @contextlib.contextmanager
    def taken(self, peer: PeerId) -> Iterator[None]:
        """Hold a slot, in a task that `cancel_all` will reach; PeerRefused("busy") when none is left."""
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
        """End what still goes on."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=limit)


class Incoming:
    """The node's `Server` behind its slots. Nothing it raises gets past here."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._calls = Slots(MAX_CALLS, MAX_CALLS_PER_PEER)
        self._streams = Slots(MAX_STREAMS, MAX_STREAMS_PER_PEER)

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        """The answer to a call; an encoded Refused when there is none."""
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
        except Exception:  # no bug of ours may end the service to others
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
        """End what is being served."""
        await asyncio.gather(self._calls.cancel_all(limit), self._streams.cancel_all(limit))
