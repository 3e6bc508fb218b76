"""The peer table: the latest announcement wins, silence is noticed, leaving removes, memory is bounded."""

from __future__ import annotations

import random
from functools import partial

import pytest

from p2pnode.discovery.table import MAX_UNMET_PER_SOURCE, SILENT_AFTER, Peer, PeerTable
from p2pnode.wire.ids import Identity
from p2pnode.wire.messages import Announcement, encode_message
from p2pnode.wire.records import SignedRecord, sign_record

ME, ALICE, BOB = (Identity(letter * 32) for letter in (b"m", b"a", b"b"))


def announcement(
    who: Identity, expiry: float, left: bool = False, run: str = "run"
) -> tuple[SignedRecord, Announcement]:
    word = Announcement("name", run, (), left=left)
    return sign_record(who, "peers/run/p", encode_message(word), expiry), word


def table_with(*people: Identity) -> PeerTable:
    """Of people that said themselves that they are there."""
    table = PeerTable(ME.peer_id)
    for who in people:
        assert table.add(*announcement(who, 100.0), who.peer_id)
    return table


def note_arrival(arrived: list[str], peer: Peer) -> None:
    arrived.append(peer.id)


def ids(table: PeerTable, tag: str | None = None) -> set[str]:
    return {peer.id for peer in table.present(tag)}


def test_arrivals_are_reported_once_and_the_own_node_never() -> None:
    table = table_with(ALICE)
    assert not table.add(*announcement(ALICE, 110.0))
    assert not table.add(*announcement(ME, 100.0))
    assert ids(table) == {ALICE.peer_id}


def test_an_older_word_never_replaces_a_newer_one() -> None:
    table = table_with(ALICE)
    table.add(*announcement(ALICE, 120.0, left=True))
    table.add(*announcement(ALICE, 110.0))
    assert ids(table) == set()
    assert table.add(*announcement(ALICE, 130.0)), "coming back is an arrival"


def test_runs_are_kept_apart() -> None:
    table = table_with(ALICE)
    table.add(*announcement(BOB, 100.0, run="other"), BOB.peer_id)
    assert ids(table, "run") == {ALICE.peer_id}
    assert ids(table) == {ALICE.peer_id, BOB.peer_id}


def test_a_peer_that_does_not_answer_becomes_silent_and_comes_back() -> None:
    table = table_with(ALICE)
    for _ in range(SILENT_AFTER):
        assert ids(table) == {ALICE.peer_id}
        table.failed(ALICE.peer_id)
    assert ids(table) == set()
    table.heard(ALICE.peer_id, 5.0, 0.01)
    assert ids(table) == {ALICE.peer_id}


def test_small_calls_tell_the_latency_and_large_ones_the_rate() -> None:
    table = table_with(ALICE)
    for _ in range(20):
        table.heard(ALICE.peer_id, 1.0, 0.1, 100)
        table.heard(ALICE.peer_id, 1.0, 2.1, 1_000_000)
    alice = table.get(ALICE.peer_id)
    assert alice is not None
    assert alice.latency == pytest.approx(0.1)
    assert alice.rate == pytest.approx(500_000)


def test_announcements_run_out() -> None:
    table = table_with(ALICE)
    assert table.expire(99.0) == []
    assert [peer.id for peer in table.expire(100.0)] == [ALICE.peer_id]
    assert len(table) == 0


def test_the_table_is_bounded_and_keeps_those_it_has_spoken_with() -> None:
    table = PeerTable(ME.peer_id, max_peers=3)
    table.add(*announcement(ALICE, 50.0), ALICE.peer_id)
    for number in range(1, 20):
        table.add(*announcement(Identity(bytes([number]) * 32), 100.0 + number))
    assert len(table) == 3
    assert ALICE.peer_id in ids(table)


def test_silent_peers_are_tried_now_and_then() -> None:
    table = table_with(ALICE)
    for _ in range(SILENT_AFTER):
        table.failed(ALICE.peer_id)
    assert table.pick_to_ping(random.Random(1), 2) == [ALICE.peer_id]


def test_newcomers_are_pinged_first() -> None:
    table = table_with(ALICE)
    table.add(*announcement(BOB, 100.0), ALICE.peer_id)
    assert all(table.pick_to_ping(random.Random(seed), 1) == [BOB.peer_id] for seed in range(10))
    assert table.pick_to_ping(random.Random(1), 2) == [BOB.peer_id, ALICE.peer_id], "but not they alone"


def test_a_peer_named_by_others_counts_once_it_was_talked_with() -> None:
    def called(table: PeerTable) -> None:
        table.called(ALICE.peer_id)

    def heard(table: PeerTable) -> None:
        table.heard(ALICE.peer_id, 1.0, 0.1)

    for talked in (called, heard):
        arrived: list[str] = []
        table = PeerTable(ME.peer_id, on_arrival=partial(note_arrival, arrived))
        assert table.add(*announcement(ALICE, 100.0), BOB.peer_id), "somebody to try"
        assert (ids(table), arrived) == (set(), [])
        assert [peer.id for peer in table.to_try("run")] == [ALICE.peer_id]
        talked(table)
        assert (ids(table), arrived) == ({ALICE.peer_id}, [ALICE.peer_id])
        table.add(*announcement(ALICE, 110.0, left=True), BOB.peer_id)
        table.add(*announcement(ALICE, 120.0), BOB.peer_id)
        assert ids(table) == set(), "who left has to come back itself"


@pytest.mark.parametrize("met", [True, False])
def test_a_silent_peer_stays_silent_whatever_others_say_of_it(met: bool) -> None:
    table = PeerTable(ME.peer_id)
    table.add(*announcement(ALICE, 100.0), ALICE.peer_id if met else BOB.peer_id)
    for started in range(1, 20):
        table.failed(ALICE.peer_id)
        word = Announcement("name", "run", (), started=float(started))
        table.add(sign_record(ALICE, "peers/run/p", encode_message(word), 100.0 + started), word, BOB.peer_id)
    assert ids(table) == set()
    assert table.to_try("run") == []
    word = Announcement("name", "run", (), started=20.0)
    table.add(sign_record(ALICE, "peers/run/p", encode_message(word), 200.0), word, ALICE.peer_id)
    assert ids(table) == {ALICE.peer_id}, "its own word that it restarted counts"


def test_one_peer_can_tell_of_so_many_that_were_not_met() -> None:
    table = table_with(ALICE, BOB)
    named = [Identity(bytes([number]) * 32) for number in range(MAX_UNMET_PER_SOURCE)]
    for ghost in named:
        assert not table.source_is_full(BOB.peer_id)
        table.add(*announcement(ghost, 150.0), BOB.peer_id)
    assert table.source_is_full(BOB.peer_id)
    assert not table.source_is_full(ALICE.peer_id)
    table.called(named[0].peer_id)
    assert not table.source_is_full(BOB.peer_id)
