"""Hearing of peers: what others tell are addresses to try; they count, and are said to be here, once talked with."""

from __future__ import annotations

from msgspec.structs import replace

from p2pnode.discovery.table import MAX_UNMET_PER_SOURCE
from p2pnode.node.peer_states import peer_state
from p2pnode.wire.ids import Identity, PeerId, sha256
from p2pnode.wire.messages import PROTOCOL, GetPeers, Hello, Peers, Ping, Pong, Welcome
from p2pnode.wire.records import SignedRecord
from tests.node.test_router import ALICE, MALLORY, PUBLIC, Answering, announcement

BOB = Identity(b"b" * 32)
GHOSTS = [Identity(sha256(f"ghost {number}".encode())) for number in range(MAX_UNMET_PER_SOURCE + 20)]


class Hearing(Answering):
    """A node that hears of peers, and what it says of them."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.services.events.listen(lambda event: self.said.append(event.kind))

    def hears(self, teller: Identity, *records: SignedRecord) -> None:
        for record in records:
            self.services.registry.take_in(record, teller.peer_id)

    def greeted_by(self, who: Identity) -> None:
        self.ask(who.peer_id, Hello(PROTOCOL, announcement(who)), Welcome)

    def tells(self) -> set[str]:
        answer = self.ask(MALLORY.peer_id, GetPeers(PUBLIC.tag), Peers)
        assert isinstance(answer, Peers)
        return {record.peer for record in answer.announcements}

    def shown_here(self) -> set[str]:
        return {peer.id for peer in self.services.table if peer_state(peer, self.services, {}).present}

    def knows(self, peer: PeerId) -> bool:
        return self.services.table.get(peer) is not None


def test_a_peer_named_by_others_is_neither_reported_nor_passed_on_before_it_calls() -> None:
    node = Hearing()
    node.hears(MALLORY, announcement(ALICE), announcement(BOB))
    assert (node.said, node.tells(), node.shown_here()) == ([], set(), set())
    assert node.ask(ALICE.peer_id, Ping(), Pong) == Pong(1000.0, known=0, knows_you=True)
    node.greeted_by(BOB)
    assert node.said == ["peer joined", "peer joined"]
    assert node.tells() == node.shown_here() == {ALICE.peer_id, BOB.peer_id}


def test_one_that_tells_of_made_up_peers_without_end_fills_no_table_and_no_log() -> None:
    node = Hearing()
    node.hears(MALLORY, *(announcement(ghost) for ghost in GHOSTS))
    assert len(node.services.table) == MAX_UNMET_PER_SOURCE
    node.hears(ALICE, announcement(BOB))
    assert node.knows(BOB.peer_id), "what others tell is still taken"
    node.greeted_by(ALICE)
    assert (node.said, node.tells()) == (["peer joined"], {ALICE.peer_id})


def test_who_passes_on_a_forged_announcement_loses_standing_and_who_has_a_wrong_clock_does_not() -> None:
    node = Hearing()
    forged = replace(announcement(BOB), signature=bytes(64))
    node.hears(MALLORY, forged, forged)
    node.hears(ALICE, announcement(BOB, expiry=1000.0 + 86_400), announcement(BOB, expiry=10.0))
    assert [node.services.reputation.faults_of(who.peer_id) for who in (MALLORY, ALICE)] == [2, 0]
    assert not node.knows(BOB.peer_id)
