"""The other side of the delta set's benchmark, in its own process: a real snapshot, and a raw stream as baseline.

    python -m benchmarks.deltaset_peer PARAMETERS

Prints one JSON line with its addresses, then serves until standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import numpy as np
import uvloop

from benchmarks.network_peer import BenchServer, open_network, serve_raw
from p2pnode.compression.weights import Units
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.policy import PolicySetup, RoundFacts
from p2pnode.merging.snapshots.messages import GetChunks, GetKept, GetSnapshot
from p2pnode.merging.snapshots.offers import Offers
from p2pnode.merging.snapshots.outline import outline_of
from p2pnode.network.base import Payload
from p2pnode.runtime.seams import real_world
from p2pnode.storage.files import MemoryStorage
from p2pnode.wire.envelope import unseal
from p2pnode.wire.ids import Identity, PeerId

LINEAGE = "00" * 32


def genesis(size: int) -> Units:
    return np.random.default_rng(0).normal(0, 1 << 20, size).astype(np.int32)


def policy(size: int, number: int, start: Units | None = None) -> DeltaSetPolicy:
    """Author `number` of a set of `size` parameters."""
    units = genesis(size) if start is None else start
    return DeltaSetPolicy(PolicySetup(units, Identity(number.to_bytes(32, "big")), LINEAGE, "main", "layout", {}, 0))


def publish(author: DeltaSetPolicy, seed: int, peers: int) -> bytes:
    """One round of made-up progress; the entry as bytes."""
    begun = author.start()
    progress = np.random.default_rng(seed).standard_normal(len(begun), np.float32)
    draft = author.record(begun, begun + np.float32(1e-3) * progress**3, RoundFacts(10, 1.0, 320, peers))
    return author.publish(draft)


class SnapshotServer(BenchServer):
    """Gives what a newcomer gets, as a node does; but made anew for each, whatever was made a moment ago."""

    def __init__(self, kept: DeltaSetPolicy) -> None:
        super().__init__()
        self._kept = kept
        self._world = real_world(MemoryStorage())
        self._offers = Offers(kept, self._world)

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        message = unseal(request, GetSnapshot, GetChunks, GetKept)
        assert isinstance(message, GetSnapshot | GetChunks | GetKept)
        if isinstance(message, GetSnapshot):
            self._offers = Offers(self._kept, self._world)
        return await self._offers.payload(message)


async def main(size: int) -> None:
    kept = policy(size, 1)
    for seed in range(8):
        publish(kept, seed, 4)
    network, _ = await open_network(SnapshotServer(kept))
    raw, raw_address = await serve_raw()
    begun = time.perf_counter()
    made = kept.snapshot()
    assert made is not None
    size = outline_of(made).size + len(made.kept)
    making = time.perf_counter() - begun
    there = {"ours": (await network.addresses())[0], "raw": raw_address, "size": size, "make_s": making}
    print(json.dumps(there), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await network.close()
    await raw.shutdown()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
