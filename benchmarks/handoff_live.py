"""Handing shards over between real processes: how fast compared with a raw stream, and whether kills lose any."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import Figures, middle, progress

ORDER_LIMIT = 120.0
SETTLE_LIMIT = 90.0
LARGE, SMALL = 5_000, 100  # samples of a shard
SAMPLE_BYTES = 792


@dataclass
class Peer:
    """One process of `benchmarks.handoff_peer`."""

    path: Path
    process: asyncio.subprocess.Process = field(init=False)
    id: str = ""
    address: str = ""

    async def start(self) -> None:
        pipe = asyncio.subprocess.PIPE
        argv = (sys.executable, "-m", "benchmarks.handoff_peer", str(self.path))
        self.process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, limit=1 << 24)
        hello = await self._line()
        self.id, self.address = hello["peer"], hello["address"]

    async def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        async with asyncio.timeout(ORDER_LIMIT):
            line = await self.process.stdout.readline()
        assert line, f"{self.path.name} ended"
        return dict(json.loads(line))

    async def do(self, what: str, **arguments: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
        return await self._line()

    async def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    async def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            async with asyncio.timeout(20.0):
                await self.process.wait()
        except TimeoutError:
            await self.kill()


async def introduce(peers: list[Peer]) -> None:
    for peer in peers:
        await peer.do("know", peers={other.id: other.address for other in peers if other is not peer})


async def open_peers(root: Path, count: int) -> list[Peer]:
    peers = [Peer(root / str(number)) for number in range(count)]
    await asyncio.gather(*(peer.start() for peer in peers))
    await introduce(peers)
    return peers


# ---- speed ----


async def measure_speed(repeats: int, large: int, small: int) -> Figures:
    """Move shards between two processes: large ones and a raw stream of as many bytes, then many small ones."""
    with tempfile.TemporaryDirectory(prefix="p2pnode-handoff-") as root:
        giver, receiver = peers = await open_peers(Path(root), 2)
        try:
            rows = [await moved_and_raw(giver, receiver, turn, large) for turn in range(repeats + 1)][1:]
            await giver.do("own", first=1 << 20, count=small, samples=SMALL)
            many = await giver.do("give", to=receiver.id)
            megabytes = large * LARGE * SAMPLE_BYTES / 1e6
            return {
                "mb_s": megabytes / middle([moved for moved, _ in rows]),
                "mb_s_raw": megabytes / middle([raw for _, raw in rows]),
                "mb_s_vs_raw": middle([raw / moved for moved, raw in rows]),
                "shards_per_s": many["given"] / many["seconds"],
                "not_given": many["of"] - many["given"],
            }
        finally:
            await asyncio.gather(*(peer.end() for peer in peers))


async def moved_and_raw(giver: Peer, receiver: Peer, turn: int, count: int) -> tuple[float, float]:
    """Seconds to move shards that only the giver has, and those of a stream; the first turn warms up connections."""
    size = count * LARGE * SAMPLE_BYTES
    await giver.do("own", first=1000 * turn, count=count, samples=LARGE)
    raw = await receiver.do("raw", peer=giver.id, size=size)
    moved = await giver.do("give", to=receiver.id)
    assert moved["given"] == moved["of"] == count, moved
    progress(f"{size / 1e6:.0f} MB in shards: {moved['seconds']:.2f} s, in one stream {raw['seconds']:.2f} s")
    return float(moved["seconds"]), float(raw["seconds"])


# ---- kills ----


async def measure_kills(kills: int, count: int = 3, shards: int = 12, seed: int = 0) -> Figures:
    """Processes move shards among each other at random while one after the other is killed; then all are counted."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="p2pnode-handoff-") as root:
        peers = await open_peers(Path(root), count)
        try:
            for number, peer in enumerate(peers):
                await peer.do("own", first=100 * number, count=shards, samples=SMALL)
                await peer.do("play")
            for number in range(kills):
                await asyncio.sleep(rng.uniform(0.2, 2.0))
                await kill_and_restart(rng.choice(peers), peers)
                progress(f"{number + 1} of {kills} killed")
            for peer in peers:
                await peer.do("rest")
            return {"sigkills": kills, "sigkill_shards": count * shards, **await counted(peers, count * shards)}
        finally:
            await asyncio.gather(*(peer.end() for peer in peers))


async def kill_and_restart(victim: Peer, peers: list[Peer]) -> None:
    await victim.kill()
    await victim.start()
    await introduce(peers)
    await victim.do("play")


async def counted(peers: list[Peer], shards: int) -> Figures:
    """Shards nobody holds or whose holder lacks the samples, and holders too many, once all is quiet."""
    lost = extra = -1
    deadline = asyncio.get_running_loop().time() + SETTLE_LIMIT
    while (lost, extra) != (0, 0) and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(2.0)
        reports = [await peer.do("report") for peer in peers]
        holders = Counter(id for report in reports for id in report["held"])
        whole = {id for report in reports for id in report["held"] if id in report["here"]}
        lost, extra = shards - len(whole), sum(holders.values()) - len(holders)
    return {"lost": lost, "extra_holders": extra}
