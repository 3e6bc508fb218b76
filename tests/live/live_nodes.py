"""Real nodes on loopback for the live tests; they end only processes they started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from p2pnode.network.base import Payload, Server
from p2pnode.network.libp2p.hivemind import HivemindNetwork, HivemindOptions
from p2pnode.network.libp2p.orphans import read_record
from p2pnode.wire.addresses import Address, parse_address
from p2pnode.wire.ids import Identity, PeerId


class EchoServer:
    """Answers with the request, after `delay`; streams `content`."""

    def __init__(self, delay: float = 0.0, content: bytes = b"") -> None:
        self.delay = delay
        self.content = Payload.of(content)
        self.faults: list[tuple[PeerId, str]] = []

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        await asyncio.sleep(self.delay)
        return request

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        return self.content

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        self.faults.append((peer, reason))


def network(directory: Path, seed: int, listen: str = "/ip4/127.0.0.1/tcp/0") -> HivemindNetwork:
    """A node's network, not yet started."""
    place = directory / str(seed)
    place.mkdir(exist_ok=True)
    identity = Identity(seed.to_bytes(32, "big"))
    (place / "key").write_bytes(identity.to_key_file())
    return HivemindNetwork(identity, HivemindOptions(data_dir=place, key_file=place / "key", listen=(listen,)))


@asynccontextmanager
async def started(*pairs: tuple[HivemindNetwork, Server]) -> AsyncIterator[None]:
    """Start networks, and close them whatever happens."""
    try:
        for each, server in pairs:
            await each.start(server)
        yield
    finally:
        for each, _ in pairs:
            await each.close()


async def address_of(each: HivemindNetwork) -> Address:
    return parse_address((await each.addresses())[0])


def daemon_pid(each: HivemindNetwork) -> int:
    record = read_record(each._options.data_dir)
    assert record is not None
    return record.pid


async def until(condition: Callable[[], bool], limit: float) -> None:
    """Wait until something holds; fails when it does not within five times the limit (the machine may be busy)."""
    async with asyncio.timeout(5 * limit):
        while not condition():  # noqa: ASYNC110 (conditions outside this process send no event)
            await asyncio.sleep(0.05)
