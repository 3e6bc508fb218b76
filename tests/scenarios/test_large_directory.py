"""The directory in a swarm of thousands: keys bounded, everybody found. For 100,000: python -m benchmarks.directory."""

from __future__ import annotations

import random

from benchmarks.directory import fill, reads_to_find, walk
from p2pnode.discovery.directory import SAMPLE, Directory
from p2pnode.simulate import run_sim
from p2pnode.wire.ids import PeerId
from p2pnode.wire.records import MAX_RECORDS_PER_KEY

PEERS = 1800


async def check_samples(directory: Directory) -> None:
    """In a crowd a read gives some of the own key and some of elsewhere, at random, and nobody is left out forever."""
    assert directory.depth
    everyone = await directory.read_key(directory.key)
    seen: set[PeerId] = set()
    rng = random.Random(1)
    for _ in range(40):
        depth, key = directory.depth, directory.key
        sample = await directory.sample_key(key, rng)
        assert len(sample) == min(SAMPLE, len(everyone))
        seen.update(sample)
        assert SAMPLE <= len(await directory.read(rng, crowd=True)) <= 2 * SAMPLE
        assert directory.depth == depth, "a sample does not make a full key look empty"
    assert not directory.whole
    assert len(everyone) > SAMPLE
    assert seen == everyone.keys()


def test_no_key_overflows_and_every_peer_is_found() -> None:
    async def main() -> None:
        members = await fill(PEERS)
        kept = [member.records.kept for member in members]
        assert max(store.largest_key() for store in kept) == MAX_RECORDS_PER_KEY, "the root is full"
        tree = await walk(members[7].directory)
        assert tree.peers == {member.network.peer for member in members}
        assert len([size for size in tree.sizes.values() if size]) > 2, "the tree has branched"
        for member in members[::300]:
            assert await reads_to_find(members[0].directory, member.network.peer) <= 4
        await check_samples(members[600].directory)

    run_sim(main())
