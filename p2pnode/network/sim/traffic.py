"""What passes between two hosts of a simulated swarm: calls, and streams of two one-way flows of bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .swarm import Arrive, SimHost, SimSwarm

if TYPE_CHECKING:
    from .network import SimNetwork

BUFFER_BYTES = 512 * 1024  # written but not yet read by the other side; a writer above this waits in drain()

Send = Callable[[bytes, Callable[[], None]], None]  # (data, what to do when it has arrived)
T = TypeVar("T")


def fail(outcome: asyncio.Future[Any], error: Exception) -> None:
    if not outcome.done():
        outcome.set_exception(error)


def succeed(outcome: asyncio.Future[T], value: T) -> None:
    if not outcome.done():
        outcome.set_result(value)


class Call:
    """A call under way. A duplicated request is answered twice; the first answer counts."""

    def __init__(self, caller: SimNetwork, target: SimHost, request: bytes, outcome: asyncio.Future[bytes]) -> None:
        self.caller = caller
        self.request = request
        self._target = target
        self._outcome = outcome

    def arrive(self) -> None:
        server = self._target.network
        if server is None or not self._target.up:
            self._reset()
        else:
            server.serve(server.answer(self), self._reset)

    def answered(self, answer: bytes) -> None:
        if not self._outcome.done():
            self.caller.note_contact(self._target)
            succeed(self._outcome, answer)

    def _reset(self) -> None:
        self.caller.reset_by(self._target, self._outcome)


class Stream:
    """An open connection from `caller` to `server`, with a flow in each direction."""

    def __init__(self, swarm: SimSwarm, caller: SimHost, server: SimHost) -> None:
        self.caller = caller
        self.server = server
        self.forth = Flow(self._link(swarm, caller, server))
        self.back = Flow(self._link(swarm, server, caller))
        self._swarm = swarm
        swarm.record("stream", caller, server)
        swarm.streams[self] = None

    def break_off(self) -> None:
        """Reset both directions, unless they have ended."""
        self._swarm.streams.pop(self, None)
        self.forth.break_off()
        self.back.break_off()

    @staticmethod
    def _link(swarm: SimSwarm, source: SimHost, target: SimHost) -> Send:
        last = 0.0

        def send(data: bytes, arrive: Arrive) -> None:
            nonlocal last
            last = swarm.carry(source, target, "piece", data, arrive, after=last)

        return send


class Flow:
    """Bytes in one direction: delayed, bounded, and reliable until the flow breaks.

    It is the `FrameWriter` of one end and the `FrameReader` of the other. `send` carries pieces over the link in order.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._pieces: deque[memoryview] = deque()
        self._readable = 0
        self._unread = 0  # in flight or readable
        self._closed = False
        self._ended = False
        self._broken = False
        self._waiters: deque[asyncio.Future[None]] = deque()

    # ---- the writing end ----

    def write(self, data: bytes | memoryview) -> None:
        if self._broken or self._closed:
            raise ConnectionResetError("the stream is gone")
        if data:
            sent = bytes(data)
            self._unread += len(sent)
            self._send(sent, lambda: self._arrived(sent))

    async def drain(self) -> None:
        while self._unread > BUFFER_BYTES and not self._broken:
            await self._change()
        if self._broken:
            raise ConnectionResetError("the stream is gone")

    def close(self) -> None:
        """Write no more; the reader sees the end after everything that was sent."""
        if not self._closed:
            self._closed = True
            self._send(b"", self._end)

    # ---- the reading end ----

    async def read(self, n: int) -> bytes:
        while not self._readable:
            if self._broken:
                raise ConnectionResetError("the stream is gone")
            if self._ended:
                return b""
            await self._change()
        return self._take(n)

    async def readexactly(self, n: int) -> bytes:
        got = bytearray()
        while len(got) < n:
            piece = await self.read(n - len(got))
            if not piece:
                raise asyncio.IncompleteReadError(bytes(got), n)
            got += piece
        return bytes(got)

    def _take(self, n: int) -> bytes:
        piece = self._pieces[0]
        if len(piece) <= n:
            self._pieces.popleft()
        else:
            self._pieces[0] = piece[n:]
            piece = piece[:n]
        self._readable -= len(piece)
        self._unread -= len(piece)
        self._wake()
        return bytes(piece)

    # ---- the link ----

    def break_off(self) -> None:
        """Reset both ends; what was not read yet is lost."""
        self._broken = True
        self._pieces.clear()
        self._readable = 0
        self._wake()

    def _arrived(self, data: bytes) -> None:
        if not self._broken:
            self._pieces.append(memoryview(data))
            self._readable += len(data)
            self._wake()

    def _end(self) -> None:
        self._ended = True
        self._wake()

    async def _change(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
