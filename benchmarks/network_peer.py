"""The other side of the network benchmark, in its own process: our streams and calls, and the baselines.

Prints one JSON line with its addresses, then serves until standard input ends.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import uvloop

from p2pnode.discovery.directory_tree import MAX_DEPTH, key_at, path_of
from p2pnode.discovery.records import Records
from p2pnode.network.base import Network, Payload, Server
from p2pnode.network.libp2p.hivemind import HivemindNetwork, HivemindOptions
from p2pnode.runtime.seams import SystemClock
from p2pnode.storage.datadir import open_data_dir
from p2pnode.wire.addresses import parse_address
from p2pnode.wire.envelope import unseal
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.messages import Announcement, Find, Store, encode_message
from p2pnode.wire.records import sign_record

LOOPBACK = ("/ip4/127.0.0.1/tcp/0",)
RAW_CHUNK = 1 << 20
RAW_PROTOCOL, RAW_CALL = "raw/stream", "raw/call"
TAG = "benchmark"


class BenchServer:
    """Serves payloads of the asked size, echoes calls, and keeps records as a node does."""

    def __init__(self) -> None:
        self.records: Records | None = None
        self._payloads: dict[int, Payload] = {}

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        if request.startswith(b"echo"):
            return request
        message = unseal(request, Store, Find)
        assert self.records is not None
        if isinstance(message, Find):
            return encode_message(self.records.serve_find(message))
        assert isinstance(message, Store)
        return encode_message(self.records.serve_store(peer, message))

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        size = int(request)
        if size not in self._payloads:
            self._payloads[size] = Payload.of(content(size))
        return self._payloads[size]

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        raise AssertionError(f"{peer}: {reason}")


async def open_network(server: Server) -> tuple[HivemindNetwork, Identity]:
    """A network on loopback with a fresh identity in a temporary directory."""
    data_dir = open_data_dir(Path(tempfile.mkdtemp(prefix="p2pnode-bench-")))
    identity = data_dir.identity()
    options = HivemindOptions(data_dir=data_dir.path, key_file=data_dir.key_file, listen=LOOPBACK)
    network = HivemindNetwork(identity, options)
    await network.start(server)
    return network, identity


async def open_with_records() -> tuple[HivemindNetwork, Records]:
    server = BenchServer()
    network, identity = await open_network(server)
    server.records = Records(network, identity, SystemClock().time)
    return network, server.records


def fill_directory(stores: Iterable[Records], peers: int) -> None:
    """Put announcements of many peers where they would put themselves, at every storer alike."""
    stores = list(stores)
    now = SystemClock().time()
    for number in range(peers):
        identity = Identity(number.to_bytes(32, "big"))
        value = encode_message(Announcement(f"peer {number}", TAG, (f"/ip4/127.0.0.1/tcp/1/p2p/{identity.peer_id}",)))
        for depth in range(MAX_DEPTH):
            record = sign_record(identity, key_at(TAG, path_of(identity.peer_id, depth)), value, now + 500)
            if {records.kept.put(record, identity.peer_id, now)[0] for records in stores} == {"stored"}:
                break


async def contact_all(network: Network, addresses: Iterable[str]) -> None:
    for address in addresses:
        await network.contact(parse_address(address), 10.0)


async def serve_raw() -> tuple[Any, str]:
    """hivemind's own raw stream and unary call, from a daemon of its own: the baseline."""
    from google.protobuf.wrappers_pb2 import BytesValue
    from hivemind.p2p import P2P

    p2p = await P2P.create(host_maddrs=LOOPBACK)

    async def stream(info: object, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await send_blocks(int.from_bytes(await reader.readexactly(8), "big"), writer)

    async def call(request: BytesValue, context: object) -> BytesValue:
        return request

    await p2p.add_binary_stream_handler(RAW_PROTOCOL, stream)
    await p2p.add_protobuf_handler(RAW_CALL, call, BytesValue)
    return p2p, str((await p2p.get_visible_maddrs())[0])


async def serve_tcp() -> int:
    """Plain asyncio TCP: what the loop and the kernel alone can do."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await send_blocks(int.from_bytes(await reader.readexactly(8), "big"), writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return int(server.sockets[0].getsockname()[1])


@functools.cache
def content(size: int) -> bytes:
    """What all of them send: the baselines too take it from memory, not from a block that stays in the cache."""
    return (bytes(range(256)) * (size // 256 + 1))[:size]


async def send_blocks(size: int, writer: asyncio.StreamWriter) -> None:
    view = memoryview(content(size))
    for start in range(0, size, RAW_CHUNK):
        writer.write(view[start : start + RAW_CHUNK])
        await writer.drain()
    writer.close()


async def main(storers: int, peers: int) -> None:
    nodes = [await open_with_records() for _ in range(storers)]
    addresses = [(await network.addresses())[0] for network, _ in nodes]
    for network, _ in nodes[1:]:
        await contact_all(network, addresses[:1])
    fill_directory((records for _, records in nodes), peers)
    raw, raw_address = await serve_raw()
    print(json.dumps({"ours": addresses, "raw": raw_address, "tcp": await serve_tcp()}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await asyncio.gather(*(network.close() for network, _ in nodes))
    await raw.shutdown()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
