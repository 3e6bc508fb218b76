"""The directory of a run in a large swarm: does every key stay bounded, and is every peer found?

    python -m benchmarks.directory [--peers 100000] [--json] [--quick]

Peers arrive quickly and announce themselves through the node's own Directory and Records, over the simulated network;
they announce again after the usual period, because by then other peers are nearest to their keys. Then one of them
walks the whole tree and looks some peers up one by one. A read asks several storers, whose records may differ, so it
can find more than any one of them keeps.

Two more parts run at the same time. benchmarks/directory_load.py counts what a node reads of such a directory
(reads_per_minute, records_per_minute and so on) at 100 to 5,000 peers with a table of 500. benchmarks/neighbours.py
measures how similar peers are found by gossip (lookups, bytes and cpu_ms per node and round, recall_at_10) at 100 to
100,000 peers; its lookups are samples it takes by its own assumption.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from statistics import mean

from benchmarks import directory_load, neighbours
from benchmarks.common import Figures, progress, run
from benchmarks.directory_members import TAG, Member
from p2pnode.discovery.directory import Directory
from p2pnode.discovery.directory_tree import MAX_DEPTH, key_at, path_of
from p2pnode.network.sim import SimSwarm
from p2pnode.simulate import identity_of, run_sim
from p2pnode.wire.addresses import Address
from p2pnode.wire.ids import PeerId
from p2pnode.wire.records import MAX_RECORDS_PER_KEY

PEERS = 100_000
PEERS_QUICK = 5_000
SIZES = (*neighbours.SIZES, 100_000)  # of the swarms in which a node looks for the most similar peers
ARRIVALS_PER_SECOND = 2000.0  # virtual; all have announced twice before the first record runs out
LOOKED_FOR = 200


@dataclass(frozen=True)
class Tree:
    """What a walk found: how many records under each path."""

    sizes: dict[str, int]
    peers: frozenset[PeerId]


async def fill(count: int, seed: int = 1) -> list[Member]:
    """A swarm of `count` members that have all announced themselves."""
    swarm = SimSwarm(seed)
    identities = [identity_of(seed, index) for index in range(count)]
    members = [Member(swarm.network(identity.peer_id), identity) for identity in identities]
    host = swarm.hosts[0]
    async with asyncio.TaskGroup() as group:
        for index, member in enumerate(members):
            group.create_task(member.join(index / ARRIVALS_PER_SECOND, Address(host.address, host.peer)))
    return members


async def walk(directory: Directory) -> Tree:
    """Read the whole tree: down to the reader's own depth, and from there on below every key that is not empty."""
    sizes: dict[str, int] = {}
    peers: set[PeerId] = set()
    paths = [""]
    while paths:
        level = await asyncio.gather(*(directory.read_key(key_at(TAG, path)) for path in paths))
        deeper: list[str] = []
        for path, found in zip(paths, level, strict=True):
            sizes[path] = len(found)
            peers.update(found)
            if len(path) < directory.depth or (found and len(path) < MAX_DEPTH):
                deeper += [path + "0", path + "1"]
        paths = deeper
    return Tree(sizes, frozenset(peers))


async def reads_to_find(directory: Directory, peer: PeerId) -> int:
    """How many keys are read, from the root towards the peer, until it is found."""
    for depth in range(MAX_DEPTH + 1):
        if peer in await directory.read_key(key_at(TAG, path_of(peer, depth))):
            return depth + 1
    raise AssertionError(f"{peer} is not in the directory")


async def measured(count: int) -> Figures:
    begun = time.perf_counter()
    members = await fill(count)
    filled = time.perf_counter()
    progress(f"{count} peers announced")
    tree = await walk(members[count // 2].directory)
    progress(f"walked {len(tree.sizes)} keys")
    step = max(1, count // LOOKED_FOR)
    searcher = members[0].directory
    reads = await asyncio.gather(*(reads_to_find(searcher, member.network.peer) for member in members[::step]))
    return {
        "peers": count,
        "found": len(tree.peers),
        "keys": sum(size > 0 for size in tree.sizes.values()),
        "keys_read": len(tree.sizes),
        "largest_key": max(member.records.kept.largest_key() for member in members),
        "allowed_per_key": MAX_RECORDS_PER_KEY,
        "largest_read": max(tree.sizes.values()),
        "depth": max(member.directory.depth for member in members),
        "reads_to_find": mean(reads),
        "reads_to_find_most": max(reads),
        "most_kept_by_one_peer": max(len(member.records.kept) for member in members),
        "announce_seconds": filled - begun,
        "seconds": time.perf_counter() - begun,
    }


def tree(peers: int) -> Figures:
    return run_sim(measured(peers))


def measure(arguments: argparse.Namespace) -> Figures:
    """The three parts, two at a time: each is one process that computes alone."""
    sizes, kinds = (neighbours.SIZES_QUICK, ("churn",)) if arguments.quick else (SIZES, neighbours.KINDS)
    loads = directory_load.SIZES_QUICK if arguments.quick else directory_load.SIZES
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        parts = [
            pool.submit(neighbours.figures, sizes, neighbours.ROUNDS, kinds),
            pool.submit(tree, arguments.peers or (PEERS_QUICK if arguments.quick else PEERS)),
            pool.submit(directory_load.figures, loads),
        ]
        return {name: value for part in parts for name, value in part.result().items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", type=int, default=0, help=f"how many ({PEERS}, with --quick {PEERS_QUICK})")
    run("directory", measure, parser)


if __name__ == "__main__":
    main()
