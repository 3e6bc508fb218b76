"""In a crowd arrivals are not reported; directory and peers share the table; partners are not forgotten."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from p2pnode.discovery.table import DIRECTORY, PeerTable, in_a_crowd
from p2pnode.wire.ids import PeerId
from p2pnode.wire.messages import Announcement
from p2pnode.wire.records import SignedRecord

ME, TELLER = PeerId("me"), PeerId("teller")
PLENTY = 1000.0


def add(table: PeerTable, name: str, expiry: float = PLENTY, listed: bool = False, left: bool = False) -> bool:
    record = SignedRecord("peers/run/p", name, expiry, b"", b"")
    return table.add(record, Announcement(name, "run", (), left=left), DIRECTORY if listed else TELLER)


@given(st.integers(0, 3000), st.integers(1, 3000), st.booleans())
def test_who_knows_more_is_no_less_in_a_crowd_and_a_full_table_always_is(known: int, most: int, whole: bool) -> None:
    assert in_a_crowd(known + 1, most, whole) >= in_a_crowd(known, most, whole)
    assert in_a_crowd(most, most, whole)
    assert not in_a_crowd(0, most, whole), "who knows nobody follows up everything"


@given(st.integers(1, 3000))
def test_of_a_directory_of_one_key_everybody_is_wanted_that_the_table_holds(most: int) -> None:
    assert not in_a_crowd(most - 1, most, whole=True)


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(1.0, PLENTY), st.booleans(), st.booleans())))
def test_in_a_crowd_nobody_is_an_arrival(words: list[tuple[str, float, bool, bool]]) -> None:
    table = PeerTable(ME, max_peers=4)
    table.crowd = True
    assert not any(add(table, name, expiry, listed, left) for name, expiry, listed, left in words)
    assert len(table) == min(4, len({name for name, *_ in words})), "they are known all the same"


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.booleans()), max_size=200))
def test_neither_directory_nor_gossip_pushes_the_other_out_of_its_half(words: list[tuple[int, bool, bool]]) -> None:
    table, had = PeerTable(ME, max_peers=10), {True: 0, False: 0}
    for time, (number, listed, spoken) in enumerate(words):
        add(table, f"{number} {listed}", PLENTY + time, listed)
        if spoken:
            table.heard(PeerId(f"{number} {listed}"), float(time), 0.1)
        for kind in (True, False):
            kept = sum(peer.listed == kind for peer in table)
            assert kept >= min(had[kind], 5)
            had[kind] = kept


def test_in_a_crowd_only_those_that_peers_named_are_tried_at_once() -> None:
    table = PeerTable(ME)
    add(table, "named")
    add(table, "read", listed=True)
    assert table.urgent() == ["named", "read"]
    table.crowd = True
    assert table.urgent() == ["named"]
    table.called(PeerId("named"))
    assert table.urgent() == []
    assert "read" in table.pick_to_ping(random.Random(1), 2), "but sooner or later"


def test_a_peer_that_was_named_first_and_then_read_is_listed() -> None:
    table = PeerTable(ME)
    for expiry in (PLENTY, PLENTY, PLENTY + 1):
        add(table, "a", expiry)
        add(table, "a", expiry, listed=True)
    add(table, "a", PLENTY + 2)
    assert [(peer.listed, peer.record.expiry) for peer in table] == [(True, PLENTY + 2)]


def test_of_those_spoken_with_the_last_heard_whose_word_runs_out() -> None:
    table = PeerTable(ME)
    for name, expiry in (("stranger", 5.0), ("early", 5.0), ("late", 5.0), ("lasting", 50.0), ("silent", 5.0)):
        add(table, name, expiry)
        if name != "stranger":
            table.heard(PeerId(name), float(len(table)), 0.1)
    for _ in range(3):
        table.failed(PeerId("silent"))
    assert table.running_out(10.0) == "late"
    assert table.running_out(100.0) == "lasting"
    assert table.running_out(5.0) is None
