"""The notebook's widget: shows the latest picture or the one asked for, and stays with it when more come."""

from __future__ import annotations

import asyncio
import importlib.util
import threading

import pytest

from p2pnode.watch.graph import PeerGraph
from p2pnode.watch.notebook.widget import LATEST, SwarmWidget, on_this_loop
from p2pnode.watch.view import SwarmView
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.status import ExchangeRow, JobState, PeerState, TrainState

NASTY = "</script><script>alert(1)</script>"


def picture(time: float) -> PeerGraph:
    peers = (
        PeerState("a", NASTY, "node", True, jobs={"main": JobState(train=TrainState(loss=1 / (1 + time)))}),
        PeerState("b", "owl", "node", False),
    )
    edges = (ExchangeRow("a", "b", time, 1, 2, 3),)
    return PeerGraph(time, "a", "run", "connected", "", peers, edges, fingerprints={"a": b"x"})


def test_the_latest_or_the_one_asked_for_is_shown() -> None:
    seen = [picture(float(time)) for time in range(4)]
    widget = SwarmView(lambda: seen).widget()
    assert widget.moments == [0.0, 1.0, 2.0, 3.0]
    assert widget.picture["time"] == 3.0
    assert widget.picture["peers"][0]["name"] == NASTY, "the page's module escapes it"
    assert "fingerprints" not in widget.picture
    widget.at = 1
    assert widget.picture["time"] == 1.0
    widget.at = 99
    assert widget.picture["time"] == 3.0


def test_what_is_looked_at_stays_and_the_latest_moves_on() -> None:
    seen = [picture(float(time)) for time in range(6)]
    live, held = SwarmWidget(lambda: seen), SwarmWidget(lambda: seen)
    held.at = 4
    seen[:] = [seen[0], seen[2], seen[4], seen[5], picture(6.0)]
    live.refresh()
    held.refresh()
    assert (live.at, live.picture["time"]) == (LATEST, 6.0)
    assert (held.at, held.picture["time"]) == (2, 4.0)


def test_nothing_seen_yet_is_an_empty_widget() -> None:
    assert SwarmView(list).widget().picture == {}


async def test_news_from_another_thread_come_to_the_notebooks_own() -> None:
    where: list[threading.Thread] = []
    done = asyncio.Event()

    def act() -> None:
        where.append(threading.current_thread())
        done.set()

    thread = threading.Thread(target=on_this_loop(act))
    thread.start()
    async with asyncio.timeout(30):
        await done.wait()
    thread.join()
    assert where == [threading.main_thread()]


@pytest.mark.parametrize("package", ["anywidget", "matplotlib", "networkx"])
def test_what_is_not_installed_is_one_clear_line(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr("p2pnode.watch.rows.find_spec", lambda name: None if name == package else known(name))
    view = SwarmView(lambda: [picture(1.0)])
    method = {"anywidget": "widget", "matplotlib": "plot_similarity", "networkx": "graph"}[package]
    with pytest.raises(LocalProblem, match=rf"{package} is not installed; pip install 'p2pnode\[notebook\]'"):
        getattr(view, method)()
