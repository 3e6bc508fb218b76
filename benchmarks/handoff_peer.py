"""A process that does nothing but hold shards, with a daemon of its own; killed at any time and started again.

Takes orders as JSON lines on standard input and answers each with one line:
    know   {"peers": {peer: address}}              who the others are
    own    {"first": n, "count": c, "samples": s}  bring some shards of made-up samples
    give   {"to": peer}                            move all that is held here; answers how long that took
    raw    {"peer": peer, "size": bytes}           fetch as much in one stream; answers how long that took
    play   {}                                      move shards to random others until `rest`
    rest   {}
    report {}                                      what is held and what is here
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.network import HashingSink
from p2pnode.discovery.services import make_services
from p2pnode.network.base import Payload, StreamLimits
from p2pnode.network.libp2p.hivemind import HivemindNetwork, HivemindOptions
from p2pnode.runtime.calls import JobCalls
from p2pnode.runtime.seams import real_world
from p2pnode.shards.driver import ShardDriver
from p2pnode.shards.messages import GetShard, SyncShards
from p2pnode.shards.route import Shipment
from p2pnode.shards.samples import encode_samples, sample_layout
from p2pnode.shards.shard import columns_id
from p2pnode.shards.store import ShardFiles, StoredShard
from p2pnode.storage.datadir import open_data_dir
from p2pnode.wire.addresses import parse_address
from p2pnode.wire.envelope import unseal
from p2pnode.wire.errors import P2pnodeError
from p2pnode.wire.ids import PeerId
from p2pnode.wire.messages import encode_message
from p2pnode.wire.run import RunAccess

RUN = RunAccess.parse("abcdefghijklmnopqrstuvwxyz")
SAMPLE_BYTES = 784
GIVEN_AT_ONCE = 64
ROOM_BYTES = 16 << 30  # one peer may fill half of it, and the speed test moves 1.5 GB to one peer
RAW = b"raw "


def columns(seed: int, count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.integers(0, 256, (count, SAMPLE_BYTES), dtype=np.uint8), "y": rng.integers(0, 10, count)}


def shard(seed: int, count: int) -> tuple[str, bytes]:
    made = columns(seed, count)
    return columns_id(made), encode_samples(made)


class ShardProcess:
    """One such node: an implementation of network.base.Server, and what the orders do."""

    def __init__(self, path: Path) -> None:
        data_dir = open_data_dir(path)
        identity = data_dir.identity()
        listen = f"/ip4/127.0.0.1/tcp/{data_dir.port() or 0}"
        options = HivemindOptions(data_dir=path, key_file=data_dir.key_file, listen=(listen,))
        self.data_dir = data_dir
        self.network = HivemindNetwork(identity, options)
        self.services = make_services(identity, real_world(data_dir.storage), self.network)
        self.others: list[PeerId] = []
        calls = JobCalls(self.services.calls, RUN, identity.peer_id, "main")
        layout = sample_layout(columns(0, 1))
        self.shard_driver = ShardDriver(self.services, calls, layout, lambda: self.others, ROOM_BYTES)
        self.playing = False

    # ---- network.base.Server ----

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        return encode_message(await self.shard_driver.answer(peer, unseal(request, SyncShards)))

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        if request.startswith(RAW):
            return Payload.of(bytes(int(request.removeprefix(RAW))))
        return await self.shard_driver.payload(peer, unseal(request, GetShard))

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        print(f"{peer[-6:]} misbehaved: {reason}", file=sys.stderr)

    # ---- orders ----

    async def live(self) -> None:
        await self.network.start(self)
        await self.shard_driver.start()
        address = parse_address((await self.network.addresses())[0])
        self.data_dir.remember_port(int(address.text.split("/")[4]))
        say({"peer": self.network.peer, "address": address.text})
        async with asyncio.TaskGroup() as group:
            group.create_task(self.shard_driver.run())
            group.create_task(self._play())
            await self._obey_all()
            raise SystemExit(0)

    async def _obey_all(self) -> None:
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            say(await getattr(self, order.pop("do"))(**order))

    async def know(self, peers: dict[str, str]) -> dict[str, Any]:
        for peer, address in peers.items():
            self.network.learn(PeerId(peer), (address,))
        self.others = [PeerId(peer) for peer in peers]
        return {}

    async def own(self, first: int, count: int, samples: int) -> dict[str, Any]:
        files = ShardFiles(self.data_dir.storage, f"runs/{RUN.run}/main/shards")
        for seed in range(first, first + count):
            id, content = shard(seed, samples)
            files.put_samples(id, content)
            self.shard_driver._store.entries[id] = StoredShard()
        await self.shard_driver.start()
        return {}

    async def give(self, to: str) -> dict[str, Any]:
        begun, shards = time.perf_counter(), self.shard_driver.held()
        slots = asyncio.Semaphore(GIVEN_AT_ONCE)

        async def one(id: str) -> bool:
            async with slots:
                return await self.shard_driver.give(Shipment(id, to, "", 0, move=True))

        given = await asyncio.gather(*map(one, shards))
        return {"seconds": time.perf_counter() - begun, "given": sum(given), "of": len(shards)}

    async def raw(self, peer: str, size: int) -> dict[str, Any]:
        begun = time.perf_counter()
        await self.network.fetch(PeerId(peer), RAW + str(size).encode(), HashingSink(), StreamLimits(size))
        return {"seconds": time.perf_counter() - begun}

    async def play(self) -> dict[str, Any]:
        self.playing = True
        return {}

    async def rest(self) -> dict[str, Any]:
        self.playing = False
        return {}

    async def report(self) -> dict[str, Any]:
        whole = [id for id in self.shard_driver.ids() if self.shard_driver.read(id)]
        return {"held": self.shard_driver.held(), "here": whole, "warnings": self._warnings()}

    def _warnings(self) -> list[str]:
        return [event.text for event in self.services.events.latest(200) if event.warning]

    async def _play(self) -> None:
        rng = random.Random()
        while True:
            held = self.shard_driver.held()
            if not self.playing or not held or not self.others:
                await asyncio.sleep(0.05)
                continue
            some = rng.sample(held, min(4, len(held)))
            gives = [Shipment(id, rng.choice(self.others), "", 0, move=True) for id in some]
            await asyncio.gather(*map(self.shard_driver.give, gives))


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    try:
        uvloop.run(ShardProcess(Path(sys.argv[1])).live())
    except (SystemExit, BaseExceptionGroup, KeyboardInterrupt):
        pass
    except P2pnodeError as problem:
        sys.exit(str(problem))
