"""The format of streams, over any pair of reader and writer.

    caller  →  version u8 · request length u32 · request · offset u64
    server  →  OPEN    u8 · payload size u64 · content hash 32 bytes
            →  DATA    u8 · length u32 · bytes                      (repeated)
            →  END     u8 · 0 u32          or at any point
            →  REFUSED | FAILED  u8 · length u32 · reason

All lengths are checked before anything is read. An end of file without END is a lost connection, never a success. A
sender below the minimum rate is given up. The receiver has one chunk in memory at a time, however large the payload.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from enum import IntEnum
from typing import Protocol

from ...wire.errors import PeerError, PeerMisbehaved, PeerRefused, PeerTimeout, PeerUnreachable
from ...wire.ids import PeerId, short
from ...wire.types import Seconds
from ..base import CHUNK_BYTES, MAX_CHUNK_BYTES, Payload, Server, Sink, StreamLimits, StreamResult

VERSION = 1
MAX_REQUEST_BYTES = 64 * 1024
MAX_REASON_BYTES = 400
SEND_BUFFER_BYTES = 2 * CHUNK_BYTES  # unsent bytes of a writer: enough to read the next chunk meanwhile
SEND_GRACE: Seconds = 60.0  # a receiver that needs longer for a message of the largest size (17 kB/s) is given up

logger = logging.getLogger(__name__)

_ASK = struct.Struct(">BI")
_OFFSET = struct.Struct(">Q")
_OPEN = struct.Struct(">Q32s")
_FRAME = struct.Struct(">BI")


class FrameStatus(IntEnum):
    OPEN = 0x10
    DATA = 0x20
    END = 0x21
    REFUSED = 0x30
    FAILED = 0x31


class FrameReader(Protocol):
    async def read(self, n: int) -> bytes: ...
    async def readexactly(self, n: int) -> bytes: ...


class FrameWriter(Protocol):
    def write(self, data: bytes | memoryview) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


# ---- the receiving side ----


async def fetch_stream(
    reader: FrameReader, writer: FrameWriter, request: bytes, sink: Sink, limits: StreamLimits
) -> StreamResult:
    """Ask for a payload and write it to `sink`. On PeerError the sink keeps what it has, so a fetch can be resumed."""
    resumed_at = sink.offset
    try:
        async with asyncio.timeout(limits.first_byte):
            writer.write(_ASK.pack(VERSION, len(request)) + request + _OFFSET.pack(resumed_at))
            await writer.drain()
            size, digest = await _read_opening(reader)
        _check_opening(size, digest, resumed_at, limits)
        await _take_chunks(reader, size, sink, limits)
    except TimeoutError:
        raise PeerTimeout(f"stream below {limits.min_rate:.0f} bytes/s after {sink.offset} bytes") from None
    except (asyncio.IncompleteReadError, OSError) as error:
        raise PeerUnreachable(f"stream broke off after {sink.offset} bytes ({type(error).__name__})") from None
    finally:
        writer.close()
    if sink.hasher.digest() != digest:
        raise PeerMisbehaved("the content does not match its hash")
    return StreamResult(size, digest, size - resumed_at)


async def _read_opening(reader: FrameReader) -> tuple[int, bytes]:
    status = (await reader.readexactly(1))[0]
    if status == FrameStatus.OPEN:
        size, digest = _OPEN.unpack(await reader.readexactly(_OPEN.size))
        return size, digest
    length = int.from_bytes(await reader.readexactly(4), "big")
    raise await _refusal(reader, status, length)


def _check_opening(size: int, digest: bytes, resumed_at: int, limits: StreamLimits) -> None:
    if size > limits.max_bytes:
        raise PeerMisbehaved(f"offers {size} bytes where at most {limits.max_bytes} are allowed")
    if limits.expected_digest and digest != limits.expected_digest:
        raise PeerMisbehaved("offers other content than was asked for")
    if resumed_at > size:
        raise PeerMisbehaved(f"has only {size} bytes, of which {resumed_at} were received before")


async def _take_chunks(reader: FrameReader, size: int, sink: Sink, limits: StreamLimits) -> None:
    """Read DATA frames until END. A timer that moves with every piece enforces the minimum rate."""
    async with asyncio.timeout(limits.grace) as timer:
        loop = asyncio.get_running_loop()
        begun, resumed_at = loop.time(), sink.offset
        while True:
            status, length = _FRAME.unpack(await reader.readexactly(_FRAME.size))
            if status == FrameStatus.END and length == 0:
                break
            if status != FrameStatus.DATA:
                raise await _refusal(reader, status, length)
            if not 0 < length <= min(MAX_CHUNK_BYTES, size - sink.offset):
                raise PeerMisbehaved(f"chunk of {length} bytes where {size - sink.offset} are left")
            while length:
                piece = await reader.read(length)
                if not piece:
                    raise asyncio.IncompleteReadError(b"", length)
                sink.write(piece)
                length -= len(piece)
                if limits.throttle is not None:
                    timer.reschedule(None)
                    read = loop.time()
                    await limits.throttle.spend(len(piece))
                    begun += loop.time() - read
                timer.reschedule(begun + limits.grace + (sink.offset - resumed_at) / limits.min_rate)
    if sink.offset != size:
        raise PeerMisbehaved(f"ended after {sink.offset} of {size} bytes")


async def _refusal(reader: FrameReader, status: int, length: int) -> PeerError:
    if status not in (FrameStatus.REFUSED, FrameStatus.FAILED) or length > MAX_REASON_BYTES:
        return PeerMisbehaved(f"unknown frame 0x{status:02x} of {length} bytes")
    reason = (await reader.readexactly(length)).decode(errors="replace")
    return PeerRefused(FrameStatus(status).name.lower(), reason)


# ---- the sending side ----


async def serve_stream(peer: PeerId, reader: FrameReader, writer: FrameWriter, server: Server) -> None:
    """Answer one incoming stream and close it. Faults of the peer are reported to `server`, never raised."""
    try:
        async with asyncio.timeout(SEND_GRACE):
            request, offset = await _read_ask(reader)
        payload = await _payload(server, peer, request)
        if offset > payload.size:
            raise PeerRefused("offset", f"{offset} is past the end")
        async with contextlib.nullcontext() if payload.throttle is None else payload.throttle.turn():
            await _send_payload(writer, payload, offset)
    except PeerRefused as refusal:
        await _send_reason(writer, FrameStatus.REFUSED, str(refusal))
    except PeerMisbehaved as fault:
        server.misbehaved(peer, str(fault))
        await _send_reason(writer, FrameStatus.REFUSED, str(fault))
    except TimeoutError:
        server.misbehaved(peer, "slow stream")
    except _NodeFailed as failure:
        logger.error("serving a stream to %s failed", short(peer), exc_info=failure.__cause__)
        await _send_reason(writer, FrameStatus.FAILED, "the peer could not serve this; its log says why")
    except (asyncio.IncompleteReadError, OSError, RuntimeError):
        pass  # the peer went away (uvloop reports a closed transport as RuntimeError)
    finally:
        writer.close()


class _NodeFailed(Exception):
    """This node failed, with the error this was raised from."""


async def _payload(server: Server, peer: PeerId, request: bytes) -> Payload:
    try:
        async with asyncio.timeout(SEND_GRACE):
            return await server.payload(peer, request)
    except (PeerRefused, PeerMisbehaved):
        raise
    except Exception as error:  # no bug of ours may end the service for others
        raise _NodeFailed from error


def _piece(payload: Payload, offset: int) -> bytes | memoryview:
    limit = CHUNK_BYTES if payload.throttle is None else payload.throttle.piece(CHUNK_BYTES)
    length = min(limit, payload.size - offset)
    try:
        piece = payload.read(offset, length)
        if len(piece) != length:
            raise ValueError(f"a payload of {payload.size} bytes gave {len(piece)} of {length} at {offset}")
    except Exception as error:  # as above
        raise _NodeFailed from error
    return piece


async def refuse_stream(writer: FrameWriter, reason: str) -> None:
    """Refuse a stream before its request is read."""
    try:
        await _send_reason(writer, FrameStatus.REFUSED, reason)
    finally:
        writer.close()


async def _read_ask(reader: FrameReader) -> tuple[bytes, int]:
    version, length = _ASK.unpack(await reader.readexactly(_ASK.size))
    if version != VERSION:
        raise PeerRefused("version", f"streams here are version {VERSION}")
    if length > MAX_REQUEST_BYTES:
        raise PeerMisbehaved(f"stream request of {length} bytes")
    request = await reader.readexactly(length)
    (offset,) = _OFFSET.unpack(await reader.readexactly(_OFFSET.size))
    return request, offset


async def _send_payload(writer: FrameWriter, payload: Payload, offset: int) -> None:
    writer.write(bytes([FrameStatus.OPEN]) + _OPEN.pack(payload.size, payload.digest))
    while offset < payload.size:
        chunk = _piece(payload, offset)
        writer.write(_FRAME.pack(FrameStatus.DATA, len(chunk)))
        writer.write(chunk)
        async with asyncio.timeout(SEND_GRACE):
            await writer.drain()
        if payload.throttle is not None:
            await payload.throttle.spend(len(chunk))
        offset += len(chunk)
    writer.write(_FRAME.pack(FrameStatus.END, 0))
    async with asyncio.timeout(SEND_GRACE):
        await writer.drain()


async def _send_reason(writer: FrameWriter, status: FrameStatus, reason: str) -> None:
    data = reason.encode()[:MAX_REASON_BYTES]
    try:
        async with asyncio.timeout(SEND_GRACE):
            writer.write(_FRAME.pack(status, len(data)) + data)
            await writer.drain()
    except (OSError, RuntimeError, TimeoutError):
        pass  # the peer is gone
