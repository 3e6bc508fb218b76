"""The frames against a hostile other end: whatever comes, the answer is an error of the peer, in bounded memory."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.network.base import CHUNK_BYTES, MAX_CHUNK_BYTES, MemorySink, Payload, StreamLimits, StreamResult
from p2pnode.network.libp2p.frames import (
    MAX_REQUEST_BYTES,
    SEND_GRACE,
    VERSION,
    FrameStatus,
    fetch_stream,
    refuse_stream,
    serve_stream,
)
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.wire.errors import PeerError, PeerMisbehaved, PeerRefused, PeerTimeout, PeerUnreachable
from p2pnode.wire.ids import PeerId
from tests.network.swarm_servers import TestServer

PEER = PeerId("peer")
LIMITS = StreamLimits(max_bytes=1_000_000)
CONTENT = bytes(range(256)) * 40


class ScriptedReader:
    """Gives the bytes of a test, in pieces of `piece` bytes with a pause before each, then ends (or hangs)."""

    def __init__(self, data: bytes, piece: int = 1 << 20, pause: float = 0.0, hangs: bool = False) -> None:
        self._data = memoryview(data)
        self._piece = piece
        self._pause = pause
        self._hangs = hangs
        self.asked = 0  # the largest single read

    async def read(self, n: int) -> bytes:
        self.asked = max(self.asked, n)
        if self._pause:
            await asyncio.sleep(self._pause)
        if not self._data and self._hangs:
            await asyncio.sleep(1e9)
        taken = bytes(self._data[: min(n, self._piece)])
        self._data = self._data[len(taken) :]
        return taken

    async def readexactly(self, n: int) -> bytes:
        taken = b""
        while len(taken) < n:
            piece = await self.read(n - len(taken))
            if not piece:
                raise asyncio.IncompleteReadError(taken, n)
            taken += piece
        return taken


class KeepingWriter:
    """Keeps what is written; `stuck` never drains."""

    def __init__(self, stuck: bool = False) -> None:
        self.written = bytearray()
        self.closed = False
        self.largest = 0
        self._stuck = stuck

    def write(self, data: bytes | memoryview) -> None:
        assert not self.closed
        self.largest = max(self.largest, len(data))
        self.written += data

    async def drain(self) -> None:
        if self._stuck:
            await asyncio.sleep(1e9)

    def close(self) -> None:
        self.closed = True


def opening(size: int, digest: bytes) -> bytes:
    return bytes([FrameStatus.OPEN]) + struct.pack(">Q32s", size, digest)


def frame(status: int, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack(">BI", status, len(data) if length is None else length) + data


def ask(request: bytes, offset: int = 0, version: int = VERSION) -> bytes:
    return struct.pack(">BI", version, len(request)) + request + struct.pack(">Q", offset)


def good_stream(content: bytes, chunk: int) -> bytes:
    chunks = [content[start : start + chunk] for start in range(0, len(content), chunk)]
    return (
        opening(len(content), Payload.of(content).digest)
        + b"".join(frame(FrameStatus.DATA, piece) for piece in chunks)
        + frame(FrameStatus.END)
    )


def receive(reader: ScriptedReader, limits: StreamLimits = LIMITS, sink: MemorySink | None = None) -> StreamResult:
    writer = KeepingWriter()
    try:
        return run_virtual(fetch_stream(reader, writer, b"request", sink or MemorySink(), limits))
    finally:
        assert writer.closed


def serve(data: bytes, server: TestServer, stuck: bool = False, hangs: bool = False) -> KeepingWriter:
    writer = KeepingWriter(stuck)
    run_virtual(serve_stream(PEER, ScriptedReader(data, hangs=hangs), writer, server))
    assert writer.closed
    return writer


# ---- receiving ----


@given(st.binary(max_size=3000), st.integers(1, 1000), st.integers(1, 500))
def test_any_content_in_any_pieces_arrives(content: bytes, chunk: int, piece: int) -> None:
    sink = MemorySink()
    fetched = receive(ScriptedReader(good_stream(content, chunk), piece), sink=sink)
    assert sink.content() == content
    assert fetched.size == fetched.received == len(content)


@given(st.data())
def test_a_truncated_stream_is_a_lost_connection_never_a_success(data: st.DataObject) -> None:
    whole = good_stream(CONTENT, 1000)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(PeerUnreachable):
        receive(ScriptedReader(whole[:cut]))


@given(st.data())
def test_a_changed_byte_never_passes_as_the_content(data: st.DataObject) -> None:
    whole = bytearray(good_stream(CONTENT, 1000))
    where = data.draw(st.integers(0, len(whole) - 1))
    whole[where] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PeerError):
        receive(ScriptedReader(bytes(whole)))


@settings(max_examples=300)
@given(st.binary(max_size=400), st.integers(1, 50))
def test_garbage_is_an_error_of_the_peer(garbage: bytes, piece: int) -> None:
    sink = MemorySink()
    with pytest.raises(PeerError):
        receive(ScriptedReader(garbage, piece), sink=sink)
    assert sink.offset <= LIMITS.max_bytes


@settings(max_examples=300)
@given(
    st.integers(0, 2000),
    st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=300), st.none() | st.integers(0, 2**32 - 1))),
)
def test_any_frames_are_an_error_or_the_content(size: int, frames: list[tuple[int, bytes, int | None]]) -> None:
    sink = MemorySink()
    script = opening(size, bytes(32)) + b"".join(frame(*each) for each in frames)
    with pytest.raises(PeerError):
        receive(ScriptedReader(script), sink=sink)
    assert sink.offset <= size


@pytest.mark.parametrize("length", [0, MAX_CHUNK_BYTES + 1, 2**32 - 1])
def test_a_chunk_of_forbidden_length_is_not_read(length: int) -> None:
    reader = ScriptedReader(opening(10**9, bytes(32)) + frame(FrameStatus.DATA, b"x", length))
    with pytest.raises(PeerMisbehaved, match="chunk"):
        receive(reader, StreamLimits(max_bytes=10**10))
    assert reader.asked <= 64


def test_more_chunks_than_announced_are_not_read() -> None:
    sink = MemorySink()
    with pytest.raises(PeerMisbehaved, match="chunk"):
        receive(ScriptedReader(opening(10, bytes(32)) + frame(FrameStatus.DATA, bytes(11))), sink=sink)
    assert sink.offset == 0


def test_a_huge_offer_is_refused_before_anything_is_read() -> None:
    reader = ScriptedReader(opening(2**63, bytes(32)) + frame(FrameStatus.DATA, bytes(1000)))
    with pytest.raises(PeerMisbehaved, match="at most"):
        receive(reader)
    assert reader.asked <= 64


def test_an_early_end_is_misbehaviour() -> None:
    with pytest.raises(PeerMisbehaved, match="ended after"):
        receive(ScriptedReader(opening(10, bytes(32)) + frame(FrameStatus.DATA, bytes(9)) + frame(FrameStatus.END)))


def test_a_long_reason_is_not_read() -> None:
    with pytest.raises(PeerMisbehaved, match="unknown frame"):
        receive(ScriptedReader(frame(FrameStatus.REFUSED, b"x", 2**31)))


def test_a_refusal_after_the_opening() -> None:
    with pytest.raises(PeerRefused, match="the disk is gone"):
        receive(ScriptedReader(opening(10, bytes(32)) + frame(FrameStatus.FAILED, b"the disk is gone")))


@pytest.mark.parametrize(
    "said", [b"", opening(10, bytes(32)), opening(10, bytes(32)) + frame(FrameStatus.DATA, bytes(9))]
)
def test_a_silent_sender_is_given_up(said: bytes) -> None:
    with pytest.raises(PeerTimeout):
        receive(ScriptedReader(said, hangs=True))


def test_a_sender_just_below_the_minimum_rate_is_given_up_and_one_above_is_not() -> None:
    limits = StreamLimits(max_bytes=10**6, min_rate=1000, grace=5)
    stream = good_stream(bytes(30_000), 30_000)
    receive(ScriptedReader(stream, piece=110, pause=0.1), limits)
    sink = MemorySink()
    with pytest.raises(PeerTimeout):
        receive(ScriptedReader(stream, piece=50, pause=0.1), limits, sink)
    assert 4000 < sink.offset < 6000  # found out while it was sending, not at the end


def test_a_dribbling_refusal_is_given_up_too() -> None:
    with pytest.raises(PeerTimeout):
        receive(ScriptedReader(frame(FrameStatus.REFUSED, bytes(300)), piece=1, pause=1.0))


def test_a_resumed_fetch_asks_for_the_rest_only() -> None:
    sink = MemorySink()
    sink.write(CONTENT[:100])
    writer = KeepingWriter()
    rest = (
        opening(len(CONTENT), Payload.of(CONTENT).digest)
        + frame(FrameStatus.DATA, CONTENT[100:])
        + frame(FrameStatus.END)
    )
    fetched = run_virtual(fetch_stream(ScriptedReader(rest), writer, b"request", sink, LIMITS))
    assert bytes(writer.written) == ask(b"request", 100)
    assert sink.content() == CONTENT
    assert fetched.received == len(CONTENT) - 100


# ---- sending ----


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_garbage_at_the_server_is_never_raised(garbage: bytes) -> None:
    server = TestServer()
    server.payloads[b""] = Payload.of(CONTENT)
    serve(garbage, server)


@given(st.integers(MAX_REQUEST_BYTES + 1, 2**32 - 1))
def test_an_oversized_request_is_counted_and_not_read(length: int) -> None:
    server = TestServer()
    writer = serve(struct.pack(">BI", VERSION, length) + bytes(1000), server)
    assert [peer for peer, _ in server.faults] == [PEER]
    assert writer.written[0] == FrameStatus.REFUSED


@given(st.integers(0, 255).filter(lambda version: version != VERSION))
def test_another_version_is_refused_politely(version: int) -> None:
    server = TestServer()
    writer = serve(ask(b"x", version=version), server)
    assert writer.written[0] == FrameStatus.REFUSED
    assert server.faults == []


def test_a_request_that_never_comes_is_counted() -> None:
    server = TestServer()
    serve(ask(b"x")[:-1], server, hangs=True)
    assert [peer for peer, _ in server.faults] == [PEER]


def test_an_offset_past_the_end_is_refused() -> None:
    server = TestServer()
    server.payloads[b"x"] = Payload.of(b"content")
    assert serve(ask(b"x", 2**63), server).written[0] == FrameStatus.REFUSED


def test_a_receiver_that_takes_nothing_is_given_up() -> None:
    server = TestServer()
    server.payloads[b"x"] = Payload.of(bytes(10 * CHUNK_BYTES))
    writer = serve(ask(b"x"), server, stuck=True)
    assert server.faults == [(PEER, "slow stream")]
    assert len(writer.written) < 2 * CHUNK_BYTES


def test_a_large_payload_is_sent_in_bounded_chunks() -> None:
    server = TestServer()
    server.payloads[b"x"] = Payload.of(bytes(5 * CHUNK_BYTES + 1))
    writer = serve(ask(b"x"), server)
    assert writer.largest == CHUNK_BYTES
    receive(ScriptedReader(bytes(writer.written)), StreamLimits(max_bytes=10**8))


@pytest.mark.parametrize("fault", [RuntimeError("secret"), ValueError("secret"), KeyError("secret")])
def test_a_failing_server_says_so_without_details(fault: Exception) -> None:
    server = TestServer()
    server.payloads[b"x"] = fault
    writer = serve(ask(b"x"), server)
    assert writer.written[0] == FrameStatus.FAILED
    assert b"secret" not in writer.written


def test_a_payload_that_gives_less_than_it_promised_fails_instead_of_looping() -> None:
    server = TestServer()
    server.payloads[b"x"] = Payload(100, bytes(32), lambda offset, length: b"")
    writer = serve(ask(b"x"), server)
    with pytest.raises(PeerRefused):
        receive(ScriptedReader(bytes(writer.written)))


def test_refusing_a_stream_closes_it_within_a_limit() -> None:
    async def body() -> None:
        writer = KeepingWriter(stuck=True)
        async with asyncio.timeout(SEND_GRACE + 1):
            await refuse_stream(writer, "busy")
        assert writer.closed

    run_virtual(body())
