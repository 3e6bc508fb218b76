"""The peer table: newest word wins, silence is noticed, leaving removes, memory is bounded."""

from __future__ import annotations

import random

import pytest

from p2pnode.ids import Identity
from p2pnode.messages import Announcement, encode
from p2pnode.peers.table import SILENT_AFTER, PeerTable
from p2pnode.records import SignedRecord, sign_record

ME, ALICE, BOB = (Identity(letter * 32) for letter in (b"m", b"a", b"b"))


def announcement(
    who: Identity, expiry: float, left: bool = False, run: str = "run"
) -> tuple[SignedRecord, Announcement]:
    word = Announcement("name", run, (), left=left)
    return sign_record(who, "peers/run/p", encode(word), expiry), word


def table_with(*people: Identity) -> PeerTable:
    table = PeerTable(ME.peer_id)
    for who in people:
        assert table.add(*announcement(who, 100.0))
    return table


def ids(table: PeerTable, tag: str | None = None) -> set[str]:
    return {peer.id for peer in table.present(tag)}


def test_arrivals_are_told_once_and_oneself_is_never_there() -> None:
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


def test_runs_are_told_apart() -> None:
    table = table_with(ALICE)
    table.add(*announcement(BOB, 100.0, run="other"))
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
    table.add(*announcement(ALICE, 50.0))
    table.heard(ALICE.peer_id, 1.0, 0.01)
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
    table = table_with(ALICE, BOB)
    table.heard(ALICE.peer_id, 1.0, 0.01)
    assert all(table.pick_to_ping(random.Random(seed), 1) == [BOB.peer_id] for seed in range(10))
