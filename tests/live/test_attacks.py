"""Raw hivemind peers do to our node what the protocol lets them: it refuses, counts, and goes on."""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from p2pnode.network.base import MemorySink, StreamLimits
from p2pnode.network.libp2p.frames import VERSION, FrameStatus
from p2pnode.network.libp2p.hivemind import HivemindNetwork, load_hivemind
from p2pnode.network.libp2p.incoming import MAX_STREAMS_PER_PEER
from p2pnode.network.libp2p.link import CALL_PROTOCOL, STREAM_PROTOCOL
from p2pnode.network.libp2p.routing import place_of
from p2pnode.wire.errors import PeerError, PeerMisbehaved, PeerRefused, PeerTimeout
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.messages import Pong, decode_answer
from tests.live.live_nodes import EchoServer, address_of, network, started, until

pytestmark = pytest.mark.live

DAY = 86_400.0


class Raw:
    """A peer made of bare hivemind, with an Ed25519 identity and a place in the DHT that follows from it."""

    def __init__(self, p2p: Any, target: HivemindNetwork) -> None:
        self.p2p = p2p
        self.peer = PeerId(str(p2p.peer_id))
        self.target = load_hivemind().PeerID.from_base58(target.peer)

    async def call(self, request: bytes) -> bytes:
        kind = load_hivemind().BytesValue
        answer = await self.p2p.call_protobuf_handler(self.target, CALL_PROTOCOL, kind(value=request), kind)
        return bytes(answer.value)

    async def stream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        _, reader, writer = await self.p2p.call_binary_stream_handler(self.target, STREAM_PROTOCOL)
        return reader, writer


@asynccontextmanager
async def attacked(directory: Path, server: EchoServer) -> AsyncIterator[tuple[HivemindNetwork, Raw]]:
    """Our node, and a raw peer connected to it."""
    from hivemind.p2p import P2P

    ours = network(directory, 1)
    async with started((ours, server)):
        key_file = directory / "raw key"
        key_file.write_bytes(Identity(os.urandom(32)).to_key_file())
        address = (await address_of(ours)).text
        p2p = await P2P.create([address], identity_path=str(key_file), check_if_identity_free=False)
        try:
            yield ours, Raw(p2p, ours)
        finally:
            await p2p.shutdown()


def attack(
    directory: Path,
    body: Callable[[HivemindNetwork, Raw, EchoServer], Awaitable[None]],
    server: EchoServer | None = None,
) -> None:
    """Run an attack, and see that the node still answers afterwards."""

    async def run() -> None:
        serving = server or EchoServer()
        async with attacked(directory, serving) as (ours, raw):
            await body(ours, raw, serving)
            serving.delay = 0
            async with asyncio.timeout(60):
                assert await raw.call(b"still there?") == b"still there?"
            assert ours.health.generation == 1

    load_hivemind()
    uvloop.run(run())


# ---- the DHT ----


async def raw_dht(raw: Raw) -> Any:
    library = load_hivemind()
    place = library.DHTID.from_bytes(place_of(raw.p2p.peer_id.to_bytes()))
    return await library.DHTNode.create(p2p=raw.p2p, node_id=place)


def test_nothing_can_be_stored_in_our_dht(tmp_path: Path) -> None:
    """Neither a plain value nor a subkey, whatever its expiry: near, infinite, not a number, ten years."""
    now = time.time()
    expiries = (now + 60, math.inf, math.nan, now + 3650 * DAY)

    async def body(ours: HivemindNetwork, raw: Raw, server: EchoServer) -> None:
        dht = await raw_dht(raw)
        key = load_hivemind().DHTID.generate("peers/run")
        for expiry, subkey, cached in itertools.product(expiries, (None, "a subkey"), (False, True)):
            stored = await dht.protocol.call_store(raw.target, [key], [b"\xa1x"], expiry, [subkey], cached)
            assert not stored or not any(stored)
            assert_nothing_stored(ours)
        found = await dht.protocol.call_find(raw.target, [key])
        assert found[key][0] is None

    attack(tmp_path, body)


@pytest.mark.parametrize("entries", [0, 1, 10_000])
def test_no_dictionary_can_be_stored_either(tmp_path: Path, entries: int) -> None:
    async def body(ours: HivemindNetwork, raw: Raw, server: EchoServer) -> None:
        from hivemind.dht.storage import DictionaryDHTValue

        dht = await raw_dht(raw)
        dictionary = DictionaryDHTValue()
        for number in range(entries):
            dictionary.store(str(number), bytes(20), time.time() + 60)
        key = load_hivemind().DHTID.generate("peers/run")
        assert not await dht.protocol.call_store(raw.target, [key], [dictionary], time.time() + 60)
        assert_nothing_stored(ours)

    attack(tmp_path, body)


def assert_nothing_stored(ours: HivemindNetwork) -> None:
    protocol = ours._link._routing._dht.protocol  # type: ignore[union-attr]
    assert len(protocol.storage) == len(protocol.cache) == 0


def test_a_find_for_too_many_keys_is_refused(tmp_path: Path) -> None:
    async def body(ours: HivemindNetwork, raw: Raw, server: EchoServer) -> None:
        dht = await raw_dht(raw)
        keys = [load_hivemind().DHTID.generate(number) for number in range(10_000)]
        assert await dht.protocol.call_find(raw.target, keys) is None

    attack(tmp_path, body)


def test_a_peer_that_chose_its_place_is_not_in_our_routing_table(tmp_path: Path) -> None:
    async def body(ours: HivemindNetwork, raw: Raw, server: EchoServer) -> None:
        library = load_hivemind()
        dht = await library.DHTNode.create(p2p=raw.p2p, node_id=library.DHTID.generate("peers/run"))
        assert await dht.protocol.call_ping(raw.target, validate=False)
        await dht.protocol.call_find(raw.target, [library.DHTID.generate("x")])
        await asyncio.sleep(0.2)
        assert await ours.nearest("peers/run", 5) == [ours.peer]

    attack(tmp_path, body)


def test_a_lookup_survives_hostile_answers(tmp_path: Path) -> None:
    """Peer ids of a megabyte (hivemind encodes them in quadratic time), strangers in wrong places, many of them."""

    async def body(ours: HivemindNetwork, raw: Raw, server: EchoServer) -> None:
        from hivemind.proto import dht_pb2

        raw_id = raw.p2p.peer_id.to_bytes()
        node = dht_pb2.NodeInfo(node_id=place_of(raw_id))
        huge = os.urandom(1_000_000)

        async def on_ping(request: Any, context: Any) -> Any:
            return dht_pb2.PingResponse(peer=node, dht_time=time.time() + DAY, available=True)

        async def on_find(request: Any, context: Any) -> Any:
            result = dht_pb2.FindResult(type=dht_pb2.FOUND_REGULAR, value=b"x", expiration_time=time.time() + DAY)
            result.nearest_node_ids.extend(
                [place_of(huge), bytes(20), bytes(19), *(os.urandom(20) for _ in range(5000))]
            )
            result.nearest_peer_ids.extend([huge, raw_id, raw_id, *(raw_id for _ in range(5000))])
            return dht_pb2.FindResponse(results=[result for _ in request.keys], peer=node)

        await raw.p2p.add_protobuf_handler("DHTProtocol.rpc_ping", on_ping, dht_pb2.PingRequest)
        await raw.p2p.add_protobuf_handler("DHTProtocol.rpc_find", on_find, dht_pb2.FindRequest)
        await ours.contact(await raw_address(raw), 5)
        async with asyncio.timeout(60):
            assert set(await ours.nearest("peers/run", 5)) == {ours.peer, raw.peer}

    attack(tmp_path, body)


async def raw_address(raw: Raw) -> Any:
    from p2pnode.wire.addresses import parse_address

    return parse_address(str((await raw.p2p.get_visible_maddrs())[0]))


# ---- calls ----


@pytest.mark.parametrize(
    ("size", "error"), [(5 << 20, PeerTimeout), (2 << 20, PeerMisbehaved)], ids=["over hivemind's limit", "over ours"]
)
def test_an_enormous_answer_ends_our_call(tmp_path: Path, size: int, error: type[PeerError]) -> None:
    async def body(ours: HivemindNetwork, raw: Raw, server: EchoServer) -> None:
        kind = load_hivemind().BytesValue

        async def on_call(request: Any, context: Any) -> Any:
            return kind(value=bytes(size))

        await raw.p2p.add_protobuf_handler(CALL_PROTOCOL, on_call, kind)
        async with asyncio.timeout(60):
            with pytest.raises(error):
                await ours.call(raw.peer, b"", 3)

    attack(tmp_path, body)


def test_an_enormous_request_is_refused_and_counted(tmp_path: Path) -> None:
    async def body(ours: HivemindNetwork, raw: Raw, server: EchoServer) -> None:
        answer = await raw.call(bytes(3 << 20))
        with pytest.raises(PeerRefused, match="too large"):
            decode_answer(answer, Pong)
        assert [peer for peer, _ in server.faults] == [raw.peer]

    attack(tmp_path, body)


def test_calls_begun_and_dropped_leave_nothing(tmp_path: Path) -> None:
    async def body(ours: HivemindNetwork, raw: Raw, server: EchoServer) -> None:
        for _ in range(10):
            calls = [asyncio.create_task(raw.call(b"")) for _ in range(50)]
            await asyncio.sleep(0.05)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        handling = ours._link._p2p._client.control._handler_tasks  # type: ignore[union-attr]
        await until(lambda: not handling, 8)

    attack(tmp_path, body, EchoServer(delay=30))


# ---- streams ----


@pytest.mark.parametrize(
    ("sent", "counted"),
    [
        (os.urandom(1000).replace(bytes([VERSION]), b"\xff"), 0),
        (struct.pack(">BI", VERSION, 2**32 - 1) + bytes(100_000), 1),
        (struct.pack(">BI", VERSION, 1000) + b"truncated", 0),
        (b"", 0),
    ],
    ids=["garbage", "oversized", "truncated", "empty"],
)
def test_broken_frames_at_our_stream_handler(tmp_path: Path, sent: bytes, counted: int) -> None:
    async def body(ours: HivemindNetwork, raw: Raw, server: EchoServer) -> None:
        reader, writer = await raw.stream()
        writer.write(sent)
        if writer.can_write_eof():
            writer.write_eof()
        async with asyncio.timeout(60):
            said = await reader.read(1000)
        writer.close()
        assert not said or said[0] == FrameStatus.REFUSED
        await until(lambda: len(server.faults) == counted, 5)

    attack(tmp_path, body)


def test_a_flood_of_silent_streams_is_bounded(tmp_path: Path) -> None:
    async def body(ours: HivemindNetwork, raw: Raw, server: EchoServer) -> None:
        flood = [await raw.stream() for _ in range(3 * MAX_STREAMS_PER_PEER)]
        readers = [asyncio.create_task(reader.read(1)) for reader, _ in flood]
        await until(lambda: sum(task.done() for task in readers) >= 2 * MAX_STREAMS_PER_PEER, 30)
        answers = [task.result() for task in readers if task.done()]
        assert len(answers) == 2 * MAX_STREAMS_PER_PEER
        refused = bytes([FrameStatus.REFUSED])
        assert refused in answers
        assert set(answers) <= {refused, b""}  # p2pd may reset a closed stream before its last byte has arrived
        for task in readers:
            task.cancel()
        for _, writer in flood:
            writer.close()

    attack(tmp_path, body)


@pytest.mark.parametrize(
    "said", [b"", b"garbage" * 100, bytes([FrameStatus.OPEN]) + bytes(39)], ids=["nothing", "garbage", "cut"]
)
def test_a_hostile_sender_at_our_fetch(tmp_path: Path, said: bytes) -> None:
    async def body(ours: HivemindNetwork, raw: Raw, server: EchoServer) -> None:
        async def on_stream(info: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(said)
            await writer.drain()
            writer.close()

        await raw.p2p.add_binary_stream_handler(STREAM_PROTOCOL, on_stream)
        with pytest.raises(PeerError):
            await ours.fetch(raw.peer, b"", MemorySink(), StreamLimits(max_bytes=1000, first_byte=5))

    attack(tmp_path, body)
