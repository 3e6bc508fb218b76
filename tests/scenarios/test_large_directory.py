"""The directory in a swarm of thousands: keys bounded, everybody found. For 100,000: python -m benchmarks.directory."""

from __future__ import annotations

from benchmarks.directory import fill, reads_to_find, walk
from p2pnode.records import MAX_RECORDS_PER_KEY
from p2pnode.simulate import run_sim

PEERS = 1800


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

    run_sim(main())
