"""Looking at a swarm from Python: rows, graphs, figures and recordings, of a real simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zstandard
from msgspec.structs import replace

import p2pnode
from p2pnode.watch.graph import PeerGraph, edges
from p2pnode.watch.history import read_views, write_views
from p2pnode.watch.view import SwarmView
from p2pnode.wire.errors import LocalProblem, UsageError
from p2pnode.wire.status import ExchangeRow, JobState, PeerState, ShardRow, TrainState

SHARDS = (
    ShardRow("s1", 64, 4096, "a", states={"active": 60, "reserve": 4}, confidence=0.7, visits=2),
    ShardRow("s2", 64, 4096, "b", keepers=("a",), here=False, states={"active": 64}),
)
NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[p2pnode.simulate.SimResult, Path]:  # type: ignore[name-defined]
    path = tmp_path_factory.mktemp("look") / "run.jsonl"
    return p2pnode.simulate(6, task="digits", rounds=6, seed=3, circle=3, alone=0, record=path), path


def test_a_simulation_can_be_looked_at_and_its_recording_says_the_same(recorded) -> None:
    result, path = recorded
    view, again = result.view(), p2pnode.Swarm.replay(path)
    assert len(view.pictures) > 5
    assert list(again.pictures) == list(view.pictures)
    assert view.peers() == again.peers()
    assert {row["circle"] for row in view.peers()} == {"circle 0", "circle 1"}
    assert all(row["round"] >= 6 and row["accuracy"] > 0.2 for row in view.peers())
    assert max(row["time"] for row in view.history()) <= result.virtual_seconds
    assert view.picture().manifest.jobs[0].plan["task"] == "digits"
    assert all(row["shards"] == 0 for row in view.peers()), "none of these samples may travel"
    assert all(row["head"] >= row["round"] for row in view.peers()), "each round is an entry; a bridge is another"


def test_models_are_alike_as_their_fingerprints_are_and_fall_into_communities(recorded) -> None:
    view = recorded[0].view()
    alike, tree = view.similarity(), view.dendrogram()
    assert set(alike.peers) == {row["id"] for row in view.peers()} == set(tree.leaves)
    assert (alike.table == alike.table.T).all() and (alike.table.diagonal() == 1).all()
    place = {peer: number for number, peer in enumerate(alike.peers)}
    for edge in view.exchanges():
        assert edge["similarity"] == alike.table[place[edge["one"]], place[edge["other"]]]
    named = {row["community"] for row in view.peers()}
    assert (
        named == {row["community"] for row in view.communities()} == set(tree.cut(view.picture().progress).of.values())
    )


def test_earlier_moments_can_be_seen(recorded) -> None:
    view = recorded[0].view()
    middle = view.pictures[len(view.pictures) // 2]
    assert view.picture(middle.time) == middle
    assert view.picture(-1.0) == view.pictures[0]
    assert sum(row["round"] or 0 for row in view.peers(middle.time)) < sum(row["round"] for row in view.peers())


def test_the_graph_has_everybody_and_exchanges_within_circles(recorded) -> None:
    graph = recorded[0].view().graph()
    assert graph.number_of_nodes() == 6
    inside = [(graph.nodes[a]["circle"], graph.nodes[b]["circle"]) for a, b in graph.edges]
    assert sum(a == b for a, b in inside) == 6, "two circles of three, each fully connected"
    assert all(graph.edges[edge]["sent_bytes"] > 0 for edge in graph.edges)


def test_rows_are_what_data_frames_take(recorded) -> None:
    import pandas
    import polars

    whole = recorded[0].view()
    view = SwarmView(lambda: [replace(whole.picture(), shards=SHARDS)])
    frames: tuple[Any, ...] = (pandas.DataFrame, polars.DataFrame)
    for frame_of in frames:
        peers, shards = frame_of(view.peers()), frame_of(view.shards())
        assert len(peers) == 6
        assert peers["accuracy"].mean() > 0.2
        assert list(shards["holder"]) == ["a", "b"]
        assert list(shards["active"]) == [60, 64]
        assert shards["confidence"].max() == 0.7
        assert frame_of(view.models())["peers"].sum() == 6
        assert len(frame_of(view.history())) == 6
        assert {"one", "other", "count", "loss_change"} <= set(frame_of(view.exchanges()).columns)


def test_figures_show_peers_and_curves(recorded, tmp_path: Path) -> None:
    view = recorded[0].view()
    graph, history = view.plot(), view.plot_history()
    for name, figure in (("graph", graph), ("history", history)):
        figure.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert graph.texts[0].get_text().startswith("6 nodes, ")
    assert [axes.get_ylabel() for axes in history.axes] == ["test accuracy (%)", "training loss", "how many", "peers"]


def picture(name: str) -> PeerGraph:
    return PeerGraph(1.0, "a", "run", "connected", "", (PeerState("a", name, "node", True),))


def test_a_view_shows_the_first_job_or_the_one_asked_for() -> None:
    jobs = {"small": JobState("a", train=TrainState(3)), "wide": JobState(train=TrainState(7))}
    view = SwarmView(lambda: [replace(picture("fox"), peers=(PeerState("a", "fox", "node", True, jobs=jobs),))])
    assert [row["round"] for row in view.peers()] == [3]
    wide = view.job("wide")
    assert [(row["round"], row["circle"]) for row in wide.peers()] == [(7, "")]
    assert [row["round"] for row in view.job("none").peers()] == [None]
    assert wide.state == view.state


def test_what_a_peer_can_set_is_no_markup() -> None:
    shown = SwarmView(lambda: [picture(NASTY)])._repr_html_()
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") == 2, "in the table and in the drawing"


def test_nothing_seen_is_said() -> None:
    with pytest.raises(UsageError, match="nothing has been seen"):
        SwarmView(list).peers()
    assert "recorded" in SwarmView(list)._repr_html_()


def test_recordings_that_are_none_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(LocalProblem, match="cannot read"):
        read_views(tmp_path / "missing")
    for content in (b"", b'{"is":"plan"}\n', b"\xff\xfe"):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(UsageError, match="no pictures"):
            read_views(tmp_path / "file")
    (tmp_path / "file").write_bytes(b'{"is":"view","time":"x"}\n')
    with pytest.raises(UsageError, match="not a recording"):
        read_views(tmp_path / "file")
    with pytest.raises(LocalProblem, match="cannot write"):
        write_views(tmp_path / "no" / "such", [])


def test_written_pictures_are_read_again_in_order(tmp_path: Path) -> None:
    second = PeerGraph(2.0, "a", "run", "connected", "", (), (ExchangeRow("a", "b", 1.5, 1, 2, 3),))
    write_views(tmp_path / "file", [second, picture("fox")])
    assert [one.time for one in read_views(tmp_path / "file")] == [1.0, 2.0]


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.zst"])
def test_a_recording_can_be_thin_and_small(name: str, recorded, tmp_path: Path) -> None:
    view = recorded[0].view()
    view.record(tmp_path / "all")
    view.record(tmp_path / name, moments=7, whole=3)
    again = p2pnode.Swarm.replay(tmp_path / name)
    assert again.peers() == view.peers()
    assert again.similarity().table.tolist() == view.similarity().table.tolist()
    assert [bool(one.fingerprints) for one in again.pictures][1:] == [False, False, True, False, False, True]
    assert again.pictures[0].time == view.pictures[0].time
    assert (tmp_path / name).stat().st_size < (tmp_path / "all").stat().st_size / 2


def test_a_broken_or_swollen_recording_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "run.zst").write_bytes(b"\x28\xb5\x2f\xfd broken")
    with pytest.raises(UsageError, match="not a recording"):
        read_views(tmp_path / "run.zst")
    (tmp_path / "run.zst").write_bytes(zstandard.compress(bytes(1 << 20)))
    with pytest.raises(UsageError, match="no pictures"):
        read_views(tmp_path / "run.zst")


def test_both_ends_of_an_exchange_are_one_edge() -> None:
    rows = [ExchangeRow("b", "a", 5.0, 1, 10, 20), ExchangeRow("a", "b", 7.0, 2, 100, 200)]
    assert edges(rows) == (ExchangeRow("a", "b", 7.0, 3, 120, 210),)


def test_an_edge_tells_the_loss_change_of_its_latest_merge() -> None:
    rows = [ExchangeRow("b", "a", 9.0, 1, 1, 1, loss_change=-0.5), ExchangeRow("a", "b", 7.0, 1, 1, 1, loss_change=0.1)]
    assert [edge.loss_change for edge in edges(rows)] == [-0.5]
