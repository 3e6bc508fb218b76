"""The past is bounded, ordered, and keeps its whole length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from p2pnode.watch.graph import PeerGraph, graph_of
from p2pnode.watch.history import PictureHistory
from p2pnode.wire.status import ExchangeRow, PeerState
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


def test_a_long_run_keeps_its_beginning_and_its_newest_moments() -> None:
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


def test_a_history_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="3 pictures"):
        PictureHistory(3)


def test_a_status_becomes_a_picture() -> None:
    graph = graph_of(status(peers=(row("fox"), row("owl", {"circle": "3"}))), now=5.0)
    assert [peer.me for peer in graph.peers] == [True, False, False]
    assert [peer.job().circle for peer in graph.peers] == ["genesis", "genesis", "3"], "the first has no name itself"
    assert graph.time == 5.0
