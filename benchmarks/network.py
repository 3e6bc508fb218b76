"""How fast the network is: streams, calls, joining, recovery and the directory, with baselines.

    python -m benchmarks.network [--quick] [--json]

`stream_vs_raw` is our framed, hashed stream against hivemind's raw stream, `stream_vs_tcp` against plain asyncio TCP,
each the median of ratios of neighbouring transfers in the same run (100 MB; `…_10mb` for 10 MB). `join_s` runs from the
start of the process until another peer lists it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from blake3 import blake3

from benchmarks.common import Figures, middle, percentile, progress, run
from benchmarks.network_peer import (
    RAW_CALL,
    RAW_PROTOCOL,
    TAG,
    BenchServer,
    contact_all,
    open_network,
    open_with_records,
)
from benchmarks.nodes import node, wait_for
from p2pnode.discovery.directory import Directory
from p2pnode.discovery.directory_tree import key_at
from p2pnode.discovery.records import Records
from p2pnode.network.base import Network, StreamLimits
from p2pnode.wire.addresses import parse_address

MB = 1_000_000
STORERS = 4
DIRECTORY_PEERS = 1000


class HashingSink:
    """Takes a stream in and keeps nothing of it."""

    def __init__(self) -> None:
        self.offset = 0
        self.hasher = blake3()

    def write(self, piece: bytes) -> None:
        self.offset += len(piece)
        self.hasher.update(piece)


# ---- streams ----


async def fetch_ours(network: Network, peer: str, size: int) -> None:
    address = parse_address(peer)
    fetched = await network.fetch(address.peer, str(size).encode(), HashingSink(), StreamLimits(max_bytes=size))
    assert fetched.received == size


async def fetch_raw(p2p: Any, peer: Any, size: int) -> None:
    _, reader, writer = await p2p.call_binary_stream_handler(peer, RAW_PROTOCOL)
    await drain_stream(reader, writer, size)


async def fetch_tcp(port: int, size: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await drain_stream(reader, writer, size)


async def drain_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, size: int) -> None:
    writer.write(size.to_bytes(8, "big"))
    received = 0
    while piece := await reader.read(1 << 20):
        received += len(piece)
    writer.close()
    assert received == size


async def timed(transfer: Callable[[], Awaitable[None]]) -> float:
    begun = time.perf_counter()
    await transfer()
    return time.perf_counter() - begun


async def measure_streams(world: World, repeats: int) -> Figures:
    figures: Figures = {}
    for size, mark in ((100 * MB // 256 * 256, ""), (10 * MB // 256 * 256, "_10mb")):
        progress(f"streams of {size // MB} MB")
        rows = []
        for _ in range(repeats + 1):
            rows.append(
                (
                    await timed(partial(fetch_ours, world.network, world.ours, size)),
                    await timed(partial(fetch_raw, world.raw, world.raw_peer, size)),
                    await timed(partial(fetch_tcp, world.tcp_port, size)),
                )
            )
        rows = rows[1:]  # the first warms up connections
        figures[f"stream_vs_raw{mark}"] = middle([raw / ours for ours, raw, _ in rows])
        figures[f"stream_vs_tcp{mark}"] = middle([tcp / ours for ours, _, tcp in rows])
        figures[f"stream_mb_per_s{mark}"] = middle([size / MB / ours for ours, _, _ in rows])
        figures[f"raw_mb_per_s{mark}"] = middle([size / MB / raw for _, raw, _ in rows])
    return figures


# ---- calls and the directory ----


async def measure_calls(world: World, count: int) -> Figures:
    from google.protobuf.wrappers_pb2 import BytesValue

    progress(f"{count} calls")
    peer = parse_address(world.ours).peer
    raw = world.raw

    async def ours() -> None:
        await world.network.call(peer, b"echo", 5.0)

    async def baseline() -> None:
        await raw.call_protobuf_handler(world.raw_peer, RAW_CALL, BytesValue(value=b"echo"), BytesValue)

    pairs = [(await timed(ours), await timed(baseline)) for _ in range(count)]
    own, raw_times = [pair[0] * 1000 for pair in pairs], [pair[1] * 1000 for pair in pairs]
    return {
        "call_p50_ms": percentile(own, 0.5),
        "call_p99_ms": percentile(own, 0.99),
        "raw_call_p50_ms": percentile(raw_times, 0.5),
    }


async def measure_directory(world: World) -> Figures:
    """All 1,000 peers of a directory: the full root and its two children, first with unknown signatures, then known."""
    progress(f"directory of {DIRECTORY_PEERS} peers")
    directory = Directory(world.records, TAG, world.network.peer)
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        found = set()
        for path in ("", "0", "1"):
            found |= set(await directory.read_key(key_at(TAG, path)))
        times.append((time.perf_counter() - begun) * 1000)
        assert len(found) == DIRECTORY_PEERS, len(found)
    return {"directory_read_ms": times[0], "directory_read_again_ms": middle(times[1:]), "directory_peers": len(found)}


class World:
    """Both sides of the benchmark: our network here, a process with peers there, and the baselines."""

    network: Network
    records: Records
    ours: str
    raw: Any  # hivemind has no types
    raw_peer: Any
    tcp_port: int


async def with_world(measure: Callable[[World], Awaitable[Figures]]) -> Figures:
    from hivemind.p2p import P2P, PeerID

    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.network_peer", str(STORERS), str(DIRECTORY_PEERS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stdin is not None
    world = World()
    try:
        there = json.loads(await asyncio.to_thread(child.stdout.readline))
        world.network, world.records = await open_with_records()
        await contact_all(world.network, there["ours"])
        world.ours, world.tcp_port = there["ours"][0], there["tcp"]
        world.raw = await P2P.create(initial_peers=[there["raw"]], host_maddrs=("/ip4/127.0.0.1/tcp/0",))
        world.raw_peer = PeerID.from_base58(there["raw"].rpartition("/")[2])
        try:
            return await measure(world)
        finally:
            await world.network.close()
            await world.raw.shutdown()
    finally:
        child.stdin.close()
        child.wait(20)


# ---- memory, in a process that does nothing else ----


async def stream_and_report(peer: str) -> None:
    network, _ = await open_network(BenchServer())
    await contact_all(network, [peer])
    await fetch_ours(network, peer, MB // 256 * 256)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await fetch_ours(network, peer, 100 * MB // 256 * 256)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await network.close()
    print(json.dumps({"peak_rss_mb": after / 1024, "rss_growth_mb": (after - before) / 1024}))


async def measure_memory(world: World) -> Figures:
    progress("memory while streaming 100 MB")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.network", "--stream-from", world.ours, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return dict(json.loads(output))


# ---- whole nodes, as a user starts them ----


def measure_nodes(repeats: int) -> Figures:
    joins, recoveries = [], []
    with tempfile.TemporaryDirectory(prefix="p2pnode-bench-") as directory:
        founder = Path(directory, "founder")
        with node(founder):
            invite = shlex.split(wait_for(founder, "an invite", lambda status: bool(status.invite)).invite)[3:]
            for number in range(repeats):
                progress(f"joining and recovering, {number + 1} of {repeats}")
                join, recovery = join_and_recover(founder, Path(directory, f"joiner{number}"), invite)
                joins.append(join)
                recoveries.append(recovery)
    return {"join_s": middle(joins), "daemon_recovery_s": middle(recoveries)}


def join_and_recover(founder: Path, joiner: Path, invite: list[str]) -> tuple[float, float]:
    """Seconds from process start to being listed by the founder, and from the daemon's death to connected again."""
    begun = time.perf_counter()
    with node(joiner, *invite) as process:
        wait_for(founder, "the joiner listed", lambda status: any(peer.name == joiner.name for peer in status.peers))
        join = time.perf_counter() - begun
        before = wait_for(joiner, "connected", lambda status: status.condition == "connected")
        daemon = next(child for child in process.children(True) if child.name() == "p2pd")
        begun = time.perf_counter()
        daemon.kill()
        again = before.daemon_starts + 1
        wait_for(joiner, "connected again", lambda now: now.daemon_starts >= again and now.condition == "connected")
        return join, time.perf_counter() - begun


def measure_imports(repeats: int) -> Figures:
    """What `--help` costs, and what importing hivemind costs."""
    progress("imports")

    def seconds(code: str) -> float:
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - begun

    return {
        "import_s": middle([seconds("import p2pnode.cli") for _ in range(repeats)]),
        "hivemind_import_s": middle([seconds("import hivemind") for _ in range(repeats)]),
    }


def measure(arguments: argparse.Namespace) -> Figures:
    repeats = 3 if arguments.quick else 9

    async def in_one_world(world: World) -> Figures:
        return {
            **await measure_streams(world, repeats),
            **await measure_calls(world, 300 if arguments.quick else 3000),
            **await measure_directory(world),
            **await measure_memory(world),
        }

    return {**measure_imports(3), **uvloop.run(with_world(in_one_world)), **measure_nodes(2 if arguments.quick else 7)}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stream-from"]:
        uvloop.run(stream_and_report(sys.argv[2]))
    else:
        run("network", measure)
