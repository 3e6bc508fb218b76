"""What the peer table remembers to be quick never differs from what its peers say."""

from __future__ import annotations

import random

import pytest

from p2pnode.discovery.table import PeerTable
from p2pnode.wire.ids import PeerId
from p2pnode.wire.messages import Announcement
from p2pnode.wire.records import SignedRecord

NAMES = [PeerId(f"peer {letter}") for letter in "abcdefgh"]


def step(table: PeerTable, rng: random.Random, now: float) -> None:
    """One thing that can happen to a table."""
    peer = rng.choice(NAMES)
    match rng.randrange(5):
        case 0:
            word = Announcement("", rng.choice(["run", "other"]), (), started=rng.randrange(2), left=rng.random() < 0.2)
            teller = rng.choice([peer, NAMES[1]])
            table.add(SignedRecord("peers/run/p", peer, now + rng.randrange(100), b"", b""), word, teller)
        case 1:
            table.heard(peer, now, 0.1)
        case 2:
            table.failed(peer)
        case 3:
            due = {known.id for known in table if known.record.expiry <= now and known.here}
            assert {known.id for known in table.expire(now)} == due
        case 4:
            table.called(peer)


@pytest.mark.parametrize("seed", range(20))
def test_present_is_what_the_peers_say(seed: int) -> None:
    rng = random.Random(seed)
    table = PeerTable(NAMES[0], max_peers=6)
    for now in range(500):
        step(table, rng, float(now))
        assert [peer.id for peer in table] == sorted(peer.id for peer in table)
        assert table.urgent() == [peer.id for peer in table if peer.fresh]
        for tag in (None, "run", "other", "third", "fourth", "fifth"):
            here = [peer for peer in table if peer.here and tag in (None, peer.announcement.run)]
            assert table.present(tag) == here
            assert table.count_present(tag) == len(here)


def test_a_restarted_peer_is_not_silent_any_more() -> None:
    table = PeerTable(NAMES[0])
    for started, expiry in ((1.0, 100.0), (1.0, 110.0), (2.0, 120.0)):
        word = Announcement("", "run", (), started=started)
        table.add(SignedRecord("peers/run/p", NAMES[1], expiry, b"", b""), word, NAMES[1])
        assert table.count_present() == (0 if expiry == 110.0 else 1)
        for _ in range(3):
            table.failed(NAMES[1])
