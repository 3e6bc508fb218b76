"""A node's network as a process for the NAT tests: prints JSON lines, obeys JSON lines on stdin, ends with them.

python nat_node.py OPTIONS      OPTIONS: a JSON object, the fields of HivemindOptions and `seed`
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from p2pnode.network.base import MemorySink, Payload, StreamLimits
from p2pnode.network.libp2p.hivemind import HivemindNetwork, HivemindOptions
from p2pnode.wire.addresses import parse_address
from p2pnode.wire.errors import P2pnodeError, PeerUnreachable
from p2pnode.wire.ids import Identity, PeerId

LIMIT = 30.0
MOST_RESUMED = 200
MAX_BYTES = 1 << 24


class Echo:
    """Answers with the request, and streams as many bytes as the request says."""

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        return request

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        return Payload.of(bytes(min(int(request), MAX_BYTES)))

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        say({"misbehaved": peer, "reason": reason})


def say(words: dict[str, Any]) -> None:
    print(json.dumps(words), flush=True)


async def execute(network: HivemindNetwork, command: dict[str, Any]) -> Any:
    match command:
        case {"do": "addresses"}:
            return await network.addresses()
        case {"do": "contact", "address": address}:
            return await network.contact(parse_address(address), LIMIT)
        case {"do": "learn", "peer": peer, "addresses": addresses}:
            return network.learn(PeerId(peer), tuple(addresses))
        case {"do": "call", "peer": peer, "text": text}:
            return (await network.call(PeerId(peer), text.encode(), LIMIT)).decode()
        case {"do": "fetch", "peer": peer, "size": size}:
            return await fetch(network, PeerId(peer), int(size))
        case {"do": "connections", "peer": peer}:
            link: Any = network._link
            found = await link._p2p._client.list_peers()
            return [str(address) for each in found if str(each.peer_id) == peer for address in each.addrs]
        case _:
            raise ValueError(f"no such command: {command}")


async def fetch(network: HivemindNetwork, peer: PeerId, size: int) -> int:
    """Resumes when a relay ends the connection, as long as it helps."""
    sink = MemorySink()
    for _ in range(MOST_RESUMED):
        before = sink.offset
        try:
            await network.fetch(peer, str(size).encode(), sink, StreamLimits(MAX_BYTES))
        except PeerUnreachable:
            if sink.offset > before:
                continue
            raise
        return len(sink.content())
    raise PeerUnreachable("resumed too often")


async def main(options: dict[str, Any]) -> None:
    identity = Identity(int(options.pop("seed")).to_bytes(32, "big"))
    data_dir = Path(options.pop("data_dir"))
    data_dir.mkdir(parents=True, exist_ok=True)
    (data_dir / "key").write_bytes(identity.to_key_file())
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    network = HivemindNetwork(identity, HivemindOptions(data_dir=data_dir, key_file=data_dir / "key", **given))
    await network.start(Echo())
    say({"peer": identity.peer_id})
    commands = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    try:
        while line := await commands.readline():
            try:
                say({"result": await execute(network, json.loads(line))})
            except P2pnodeError as error:
                say({"error": f"{type(error).__name__}: {error}"})
    finally:
        await network.close()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
