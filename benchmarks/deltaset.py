"""How fast, small and quiet the delta set of one node is, and whether its event loop keeps up while it trains.

    python -m benchmarks.deltaset [--quick] [--json]

`entries_per_s` is the whole way from bytes into a set of a million parameters (decode, signature, rules, codec,
addition) with nothing cached; the additions and the signatures alone are reported too.
`idle_exchange_bytes` is question and answer when nothing is new, with 16 authors.
`snapshot_vs_raw` is a snapshot between two processes against hivemind's raw stream of as many bytes, the median over
neighbouring transfers; `snapshot_make_share` is the part of its time spent on making it, before the first byte.
`bytes_per_parameter` is what stays between rounds with AdamW, including the EMA (4); `…_peak` is the most within them.
`disk_…` plays rounds of 2 s in a circle of four: what is written in an hour, and what is kept (held).
`loop_lag_p99_ms` and `call_p99_ms_while_training` are of real nodes on loopback, `…_idle` of an idle node.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import permutations

import numpy as np
import uvloop

from benchmarks.common import Figures, middle, progress, run
from benchmarks.deltaset_nodes import measure_nodes
from benchmarks.deltaset_peer import genesis, policy, publish
from benchmarks.network import drain_stream, timed
from benchmarks.network_peer import RAW_PROTOCOL, BenchServer, contact_all, open_network
from p2pnode.discovery.services import make_services
from p2pnode.jobs.model.checkpoints import save_pause
from p2pnode.merging.deltaset.entry import _decode_large, _decode_small, claim_of, decode_entry, delta_of
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.deltaset.set import DeltaSet, apply
from p2pnode.merging.messages import Exchange, Exchanged
from p2pnode.merging.snapshots.fetch import Fetching
from p2pnode.merging.snapshots.outline import Assembly, Snapshot
from p2pnode.runtime.calls import JobCalls
from p2pnode.runtime.seams import real_world
from p2pnode.storage.checkpoints import CheckpointStore
from p2pnode.storage.files import MemoryStorage, Part
from p2pnode.wire.addresses import parse_address
from p2pnode.wire.envelope import seal
from p2pnode.wire.ids import PeerId, known_signed_by, signed_by
from p2pnode.wire.messages import encode_message
from p2pnode.wire.run import RunAccess

SIZE = 1_000_000
SNAPSHOT_SIZE = 5_600_000
AUTHORS = 8
ROUND_SECONDS = 2.0
CIRCLE = 4
PROOF_BYTES = 32  # of membership, in a private run
ONE, OTHER = PeerId("one"), PeerId("other")


# ---- entries and exchanges, in this process ----


def measure_entries(rounds: int) -> Figures:
    """Entries a second from bytes into A, and what the additions and the signatures alone allow."""
    progress(f"{AUTHORS * rounds} entries at {SIZE:,} parameters")
    start = genesis(SIZE)
    authors = [policy(SIZE, number + 1, start) for number in range(AUTHORS)]
    entries = [publish(author, seed, AUTHORS) for seed in range(rounds) for author in authors]
    rules = authors[0].set.rules
    fresh = DeltaSet(rules, start)
    forget()
    begun = time.perf_counter()
    verdicts = [fresh.add(decode_entry(data)).verdict for data in entries]
    full = time.perf_counter() - begun
    assert verdicts == ["added"] * len(entries), set(verdicts)
    assert known_signed_by.cache_info().misses == len(entries), "signatures were known from publishing"
    deltas = [delta_of(decode_entry(data), rules) for data in entries]
    begun = time.perf_counter()
    for delta in deltas:
        apply(fresh.units, delta)
    adding = time.perf_counter() - begun
    return {
        "entries_per_s": len(entries) / full,
        "additions_alone_per_s": len(entries) / adding,
        "signatures_alone_per_s": signatures_per_second(entries),
        "entry_bytes": middle([len(data) for data in entries]),
        "entry_coordinates": middle([len(delta.indices) for delta in deltas]),
    }


def forget() -> None:
    """The authors live in this process: what it checked and decoded for them must not help the reader."""
    known_signed_by.cache_clear()
    _decode_small.cache_clear()
    _decode_large.cache_clear()


def signatures_per_second(entries: list[bytes]) -> float:
    read = [decode_entry(data) for data in entries]
    claims = [(entry.peer, claim_of(entry)) for entry in read]
    forget()
    begun = time.perf_counter()
    assert all(signed_by(peer, claim.content, claim.signature) for peer, claim in claims)
    return len(claims) / (time.perf_counter() - begun)


def measure_idle() -> Figures:
    """Bytes of an exchange's question and answer between two that know the same, everything but the transport's own."""
    figures: Figures = {}
    for authors in (8, 16):
        nodes = [policy(4096, number + 1) for number in range(authors)]
        for seed, node in enumerate(nodes):
            publish(node, seed, authors)
        for _ in range(2):
            for one, other in permutations(nodes, 2):
                exchange(one, other)
        question = seal(Exchange(nodes[0].ask(OTHER)), "x" * 26, "main", bytes(PROOF_BYTES))
        answer = encode_message(Exchanged(nodes[1].answer(ONE, nodes[0].ask(OTHER))))
        figures[f"idle_exchange_bytes_{authors}"] = len(question) + len(answer)
    return {"idle_exchange_bytes": figures["idle_exchange_bytes_16"], **figures}


def exchange(one: DeltaSetPolicy, other: DeltaSetPolicy) -> None:
    push = one.take(OTHER, other.answer(ONE, one.ask(OTHER)))
    if push:
        other.take(ONE, push)


# ---- disk ----


class CountingStorage(MemoryStorage):
    """A disk that counts what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def write(self, name: str, *parts: Part) -> None:
        self.written += sum(map(len, parts))
        super().write(name, *parts)

    def append(self, name: str, data: bytes) -> None:
        self.written += len(data)
        super().append(name, data)

    @property
    def held(self) -> int:
        return sum(map(len, self._files.values()))


def measure_disk(rounds: int) -> Figures:
    """A circle of four, in step; what one of them notes and saves. Trained weights and moments are made up."""
    progress(f"disk over {rounds} rounds")
    start = genesis(SIZE)
    nodes = [policy(SIZE, number + 1, start) for number in range(CIRCLE)]
    disk, moments = CountingStorage(), {f"moment/{name}": np.zeros(SIZE, np.float32) for name in ("first", "second")}
    saved = CheckpointStore(disk, "runs/bench/main")
    held: list[int] = []
    journal = saves = 0
    next_save = 0.0
    for number in range(rounds):
        if number * ROUND_SECONDS >= next_save or saved.due:
            saved.save({**nodes[0].state(), **moments})
            next_save = number * ROUND_SECONDS + save_pause(saved.state_bytes)
            saves += 1
            held.append(disk.held)
        entries = [publish(node, number * CIRCLE + place, CIRCLE) for place, node in enumerate(nodes)]
        saved.note(entries[0])
        journal += len(entries[0])
        for one, other in permutations(nodes, 2):
            exchange(one, other)
        for node in nodes:
            node.merge()
    hours = rounds * ROUND_SECONDS / 3600
    return {
        "disk_mb_per_hour": disk.written / 1e6 / hours,
        "disk_journal_mb_per_hour": journal / 1e6 / hours,
        "disk_held_mb": held[-1] / 1e6,
        "disk_held_growth_mb_last_third": (held[-1] - held[-max(1, len(held) // 3)]) / 1e6,
        "disk_state_bytes_per_parameter": held[-1] / 2 / SIZE,
        "disk_saves_per_hour": saves / hours,
    }


# ---- between processes ----


@contextlib.contextmanager
def child(*words: str) -> Iterator[dict[str, object]]:
    """A process that says where it is in one JSON line and ends with its standard input."""
    process = subprocess.Popen([sys.executable, "-m", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdin is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


async def measure_snapshot(repeats: int) -> Figures:
    from hivemind.p2p import P2P, PeerID

    progress(f"snapshots of {SNAPSHOT_SIZE:,} parameters")
    with child("benchmarks.deltaset_peer", str(SNAPSHOT_SIZE)) as there:
        size, peer = int(str(there["size"])), parse_address(str(there["ours"])).peer
        network, identity = await open_network(BenchServer())
        await contact_all(network, [str(there["ours"])])
        raw = await P2P.create(initial_peers=[str(there["raw"])], host_maddrs=("/ip4/127.0.0.1/tcp/0",))
        raw_peer = PeerID.from_base58(str(there["raw"]).rpartition("/")[2])
        calls = make_services(identity, real_world(MemoryStorage()), network).calls
        fetching = Fetching(JobCalls(calls, RunAccess.parse("a" * 26), network.peer, "main"), blame)
        taken = Snapshot(b"", b"")

        async def ours() -> None:
            nonlocal taken
            outline = await fetching.outline(peer, size, "")
            assembly = Assembly(outline)
            kept, _ = await asyncio.gather(fetching.kept(peer, outline), fetching.fill(assembly, [peer]))
            assert assembly.complete
            taken = Snapshot(outline.place, assembly.content, kept)

        async def baseline() -> None:
            _, reader, writer = await raw.call_binary_stream_handler(raw_peer, RAW_PROTOCOL)
            await drain_stream(reader, writer, size)

        try:
            pairs = [(await timed(ours), await timed(baseline)) for _ in range(repeats + 1)][1:]
        finally:
            await network.close()
            await raw.shutdown()
    newcomer = policy(SNAPSHOT_SIZE, 2)
    adopting = await timed(lambda: asyncio.to_thread(newcomer.adopt, taken))
    return {
        "snapshot_vs_raw": middle([other / own for own, other in pairs]),
        "snapshot_mb_per_s": middle([size / 1e6 / own for own, _ in pairs]),
        "snapshot_raw_mb_per_s": middle([size / 1e6 / other for _, other in pairs]),
        "snapshot_mb": size / 1e6,
        "snapshot_make_share": float(str(there["make_s"])) / middle([own for own, _ in pairs]),
        "snapshot_adopt_s": adopting,
    }


def blame(peer: PeerId, reason: str) -> None:
    raise AssertionError(f"{peer}: {reason}")


def measure_memory(width: int, layers: int) -> Figures:
    progress("memory")
    words = [sys.executable, "-m", "benchmarks.deltaset_memory", "--json", str(width), str(layers)]
    output = json.loads(subprocess.check_output(words))
    rows = {f"memory {row['array']}": float(row["bytes_per_parameter"]) for row in output["rows"]}
    return {
        "bytes_per_parameter": float(output["counted"]),
        "bytes_per_parameter_resident": float(output["resident"]),
        "bytes_per_parameter_peak": float(output["peak"]),
        **rows,
        "memory_parameters": int(output["parameters"]),
    }


def measure(arguments: argparse.Namespace) -> Figures:
    quick = arguments.quick
    return {
        **measure_entries(6 if quick else 40),
        **measure_idle(),
        **uvloop.run(measure_snapshot(3 if quick else 9)),
        **measure_memory(256, 7),
        **measure_disk(40 if quick else 300),
        **measure_nodes(200 if quick else 500, with_text=not quick),
    }


if __name__ == "__main__":
    run("deltaset", measure)
