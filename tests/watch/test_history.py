"""The past is bounded, ordered, and keeps its whole length."""

from __future__ import annotations

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from p2pnode.watch.graph import PeerGraph, graph_of
from p2pnode.watch.history import (
    MAX_ROUNDS,
    SAVED_ROWS,
    SAVED_WHOLE,
    PictureHistory,
    joined_rounds,
    pack_history,
    unpack_history,
)
from p2pnode.wire.status import ExchangeRow, MergeRow, PeerState
from tests.watch.test_terminal import row, status


def picture(time: float, peers: int = 1) -> PeerGraph:
    views = tuple(PeerState(f"peer{number}", "", "node", True) for number in range(peers))
    return PeerGraph(time, "peer0", "run", "connected", "", views)


@given(st.lists(st.floats(0, 1e6), max_size=200), st.integers(4, 40))
def test_bounded_ordered_and_never_two_of_one_time(times: list[float], most: int) -> None:
    history = PictureHistory(most)
    for time in times:
        history.add(picture(time))
    kept = [graph.time for graph in history.all()]
    assert len(kept) <= most
    assert kept == sorted(set(kept))


def test_a_long_run_keeps_its_beginning_and_its_latest_moments() -> None:
    history = PictureHistory(100)
    for time in range(10_000):
        history.add(picture(float(time)))
    kept = [graph.time for graph in history.all()]
    assert kept[0] == 0.0
    assert kept[-20:] == [float(time) for time in range(9_980, 10_000)]


def test_large_swarms_keep_fewer_pictures() -> None:
    history = PictureHistory(100, max_rows=1_000)
    edges = tuple(ExchangeRow(f"one{at}", f"other{at}", 0.0, 1, 0, 0) for at in range(30))
    for time in range(200):
        history.add(replace(picture(float(time), peers=20), exchanges=edges))
    assert sum(len(graph.peers) + len(graph.exchanges) for graph in history.all()) <= 1_000
    assert len(history.all()) >= 4


def test_what_is_kept_on_disk_is_bounded_and_spans_the_whole_run() -> None:
    edges = tuple(ExchangeRow(f"one{at}", f"other{at}", 0.0, 1, 0, 0) for at in range(30))
    pictures = [replace(picture(float(time), peers=100), exchanges=edges) for time in range(600)]
    rounds = {"main": [MergeRow(number, 0.0, (), 1, 2, 3, 0.5, 0.1) for number in range(500)]}
    kept = unpack_history(pack_history(pictures, rounds))
    assert (kept.pictures[0].time, kept.pictures[-1].time) == (0.0, 599.0)
    assert sum(len(graph.peers) for graph in kept.pictures) <= SAVED_ROWS
    assert sum(bool(graph.exchanges) for graph in kept.pictures) <= SAVED_WHOLE
    assert list(kept.rounds["main"]) == rounds["main"]


@pytest.mark.parametrize("data", [b"", b"nonsense", zstandard.compress(b"nonsense"), pack_history([], {})[:-1]])
def test_a_damaged_history_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack_history(data)


def test_earlier_pictures_come_first_and_only_those() -> None:
    history = PictureHistory(40)
    for time in (5.0, 6.0):
        history.add(picture(time))
    history.put_before([picture(time) for time in (1.0, 2.0, 5.5)])
    assert [graph.time for graph in history.all()] == [1.0, 2.0, 5.0, 6.0]


def test_rounds_of_earlier_starts_come_before_those_of_this_one_within_a_bound() -> None:
    def rows(*numbers: int) -> list[MergeRow]:
        return [MergeRow(number, 0.0, (), 1, 2, 3, 0.5, 0.1) for number in numbers]

    assert joined_rounds(rows(1, 2, 3), rows(3, 4)) == rows(1, 2, 3, 4), "a round that was not saved is done again"
    many = joined_rounds(rows(*range(900)), rows(*range(900, 1400)))
    assert len(many) <= MAX_ROUNDS
    assert (many[0].round, many[-1].round) == (0, 1399)


def test_a_history_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="3 pictures"):
        PictureHistory(3)


def test_a_status_becomes_a_picture() -> None:
    graph = graph_of(status(peers=(row("fox"), row("owl", {"circle": "3"}))), now=5.0)
    assert [peer.me for peer in graph.peers] == [True, False, False]
    assert [peer.job().circle for peer in graph.peers] == ["genesis", "genesis", "3"], "the first has no name itself"
    assert graph.time == 5.0
