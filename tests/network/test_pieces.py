"""The reader of incoming streams: all bytes, in order, none held beyond its bound."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.network.libp2p.pieces import PAUSE_BYTES, PieceReader
from p2pnode.network.sim.virtual_time import run_virtual


class FakeTransport:
    def __init__(self) -> None:
        self.reading = True
        self.protocol: Any = None

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


def taken_over(early: bytes = b"", ended: bool = False) -> tuple[PieceReader, FakeTransport]:
    reader = asyncio.StreamReader()
    if early:
        reader.feed_data(early)
    if ended:
        reader.feed_eof()
    transport = FakeTransport()
    return PieceReader(reader, transport), transport  # type: ignore[arg-type]


@given(st.lists(st.binary(min_size=1, max_size=50)), st.lists(st.integers(1, 60), min_size=1), st.binary(max_size=30))
def test_every_byte_comes_in_order_however_it_is_cut(pieces: list[bytes], wants: list[int], early: bytes) -> None:
    async def body() -> None:
        reader, _ = taken_over(early)
        for piece in pieces:
            reader.data_received(piece)
        reader.eof_received()
        whole, got = early + b"".join(pieces), b""
        for number in range(len(whole) + 1):
            part = await reader.read(wants[number % len(wants)])
            assert len(part) <= wants[number % len(wants)]
            got += part
        assert got == whole
        assert await reader.read(1) == b""

    run_virtual(body())


def test_a_reader_waits_for_what_is_to_come() -> None:
    async def body() -> None:
        reader, _ = taken_over(b"ab")
        reading = asyncio.create_task(reader.readexactly(5))
        await asyncio.sleep(1)
        reader.data_received(b"c")
        await asyncio.sleep(1)
        reader.data_received(b"defg")
        assert await reading == b"abcde"
        assert await reader.read(10) == b"fg"

    run_virtual(body())


def test_an_end_in_the_middle_is_not_exactly_what_was_wanted() -> None:
    async def body() -> None:
        reader, _ = taken_over(b"ab", ended=True)
        with pytest.raises(asyncio.IncompleteReadError):
            await reader.readexactly(3)

    run_virtual(body())


def test_an_end_with_nothing_read_is_not_exactly_what_was_wanted() -> None:
    async def body() -> None:
        reader, _ = taken_over(ended=True)
        with pytest.raises(asyncio.IncompleteReadError):
            await reader.readexactly(3)

    run_virtual(body())


def test_a_lost_connection_is_raised_after_what_came() -> None:
    async def body() -> None:
        reader, _ = taken_over(b"ab")
        reader.connection_lost(ConnectionResetError())
        assert await reader.read(10) == b"ab"
        with pytest.raises(ConnectionResetError):
            await reader.read(10)

    run_virtual(body())


def test_the_socket_waits_while_too_much_is_held() -> None:
    async def body() -> None:
        reader, transport = taken_over()
        while transport.reading:
            reader.data_received(bytes(100_000))
        assert reader._held <= PAUSE_BYTES + 100_000
        await reader.read(100_000)
        assert not transport.reading
        while not transport.reading:
            await reader.read(100_000)
        assert 0 < reader._held <= PAUSE_BYTES // 2

    run_virtual(body())
