"""A simulated connection: two one-way flows of bytes, delayed, throttled, bounded, and reliable until they break."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

BUFFER_BYTES = 512 * 1024  # written but not yet read by the other side; a writer over it waits in drain()

Send = Callable[[bytes, Callable[[], None]], None]  # (data, what to do when it has arrived)


class Flow:
    """Bytes one way. It is the writer of one end and the reader of the other (p2pnode.network.frames.Reader, Writer).

    `send` carries a piece over the link, pieces arriving in the order sent.
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
        """No more will be written; the reader sees the end after all that was sent."""
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
        """Both ends see a reset; what was not read by now is lost."""
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
