"""A look at a real swarm: an observer with a daemon of its own sees who is there, and takes no part."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import p2pnode
from p2pnode.wire.errors import LocalProblem, UsageError
from p2pnode.wire.invite import decode_invite
from tests.known import known
from tests.live.cli_nodes import PATIENCE, NodeProcess, pasted, wait_for

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("learning")]
LIMIT = 90.0
CELLS = (
    "import asyncio, p2pnode\nview = await p2pnode.Swarm.look('ADDRESS', timeout=400)\nview",
    "widget = view.widget()\nfirst = widget.picture['time']\nwhile widget.picture['time'] == first:\n"
    "    await asyncio.sleep(0.1)\nwidget",
    "view.close()\nprint(view.state)",
)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, NodeProcess]]:
    tmp_path = tmp_path_factory.mktemp("two")
    founder = NodeProcess(tmp_path, "founder", "--round-seconds", "0.5", learns=True)
    friend = NodeProcess(tmp_path, "friend", *pasted(founder.invite())[3:], learns=True)
    yield founder, friend
    friend.stop()
    founder.stop()


def fails(address: str, run: str | None, problem: str) -> None:
    """A look that sees nothing ends with the problem. One that was ended while it was still starting gets more time."""
    for seconds in (6.0, 30.0, PATIENCE * LIMIT):
        with pytest.raises(LocalProblem) as raised:
            p2pnode.Swarm.look(address, run, timeout=seconds).open()
        if not str(raised.value).endswith((": starting", ": looking for the others")):
            break
    assert re.search(problem, str(raised.value))


def test_a_notebook_and_a_script_see_the_swarm_and_are_no_members(
    two: tuple[NodeProcess, NodeProcess], tmp_path: Path
) -> None:
    founder, _ = two
    address, run = founder.address(), decode_invite(founder.invite()).access.run

    async def look() -> p2pnode.watch.swarm.Look:  # type: ignore[name-defined]
        return await p2pnode.Swarm.look(address, timeout=PATIENCE * LIMIT)

    view = asyncio.run(look())
    try:
        wait_for(
            "both nodes", lambda: sum(row["role"] == "node" and row["present"] for row in view.peers()) == 2, LIMIT
        )
        wait_for("their rounds", lambda: sum(row["round"] is not None for row in view.peers()) == 2, LIMIT)
        wait_for("their exchange", lambda: len(view.exchanges()) == 1, LIMIT)
        assert [row["role"] for row in view.peers() if row["me"]] == ["observer"]
        assert founder.status()["jobs"]["main"]["train"]["samples"] > 0
        assert view.graph().number_of_edges() == 1
    finally:
        view.close()
    view.record(tmp_path / "look.jsonl")
    assert p2pnode.Swarm.replay(tmp_path / "look.jsonl").peers() == view.peers()
    assert view.state == "closed; what was seen stays"
    with p2pnode.Swarm.look(address, run, timeout=PATIENCE * LIMIT) as again:
        assert len(again.peers()) >= 2
        assert known(again.picture().manifest).jobs[0].plan["task"] == "digits"
        assert again.state.startswith("connected: ")
    fails(address, "a" * 26, f"no member of run {'a' * 26} found yet: the node at .* is in another run")


def test_a_notebook_awaits_a_look_and_its_widget_follows(two: tuple[NodeProcess, NodeProcess]) -> None:
    cells = [cell.replace("ADDRESS", two[0].invite().split()[-1]) for cell in CELLS]  # a code will do
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=int(PATIENCE * LIMIT)).execute()
    shown = [output for cell in notebook.cells for output in cell.outputs]
    assert any("application/vnd.jupyter.widget-view+json" in output.get("data", {}) for output in shown)
    assert "connected: " in shown[0].data["text/html"]
    assert shown[-1].text.strip() == "closed; what was seen stays"


def test_nobody_there_is_said_and_ends(tmp_path: Path) -> None:
    nobody = "/ip4/127.0.0.1/tcp/9/p2p/12D3KooWNkBvbteZaWsKRGQMCoBFohHHMoPGTMHiQRubRdZNnMd7"
    fails(nobody, None, r"nothing was seen of the swarm at .* within \d+ s: no peer answers \(")
    with pytest.raises(UsageError):
        p2pnode.Swarm.look("not an address")


def test_watch_shows_a_swarm_takes_no_part_and_leaves_nothing(
    two: tuple[NodeProcess, NodeProcess], tmp_path: Path
) -> None:
    founder, _ = two
    watcher = NodeProcess(tmp_path, "watcher", "watch", founder.invite().split()[-1])
    try:
        watcher.says(r"connected: \d other node")
        wait_for(
            "the watcher to be seen", lambda: any(r["role"] == "observer" for r in founder.status()["peers"]), LIMIT
        )
        watcher.signalled(signal.SIGINT)
        assert watcher.process.returncode == 0
        assert not list(watcher.temporary.glob("p2pnode-watch-*"))
        assert not watcher.data_dir.exists()
    finally:
        watcher.stop()


def test_the_own_node_is_seen_while_it_runs(two: tuple[NodeProcess, NodeProcess]) -> None:
    founder, _ = two
    own = p2pnode.Swarm.own(founder.data_dir)
    wait_for("its fingerprints", lambda: len(own.similarity().peers) == 2, LIMIT)
    assert {row["role"] for row in own.peers() if row["me"]} == {"node"}
    assert own.invite == founder.invite()


def test_the_own_node_is_seen_after_its_end(two: tuple[NodeProcess, NodeProcess], tmp_path: Path) -> None:
    third = NodeProcess(tmp_path, "third", *pasted(two[0].invite())[3:])  # the others are for all tests
    try:
        third.says("joined run")
        own = p2pnode.Swarm.own(third.data_dir)
        running = own.picture()
        third.signalled(signal.SIGINT)
        wait_for("the node's end to be seen", lambda: own.state.startswith("no node is running"), LIMIT)
        assert own.invite == ""
        assert len(own.peers()) >= 1
        assert known(own.picture().manifest).name == known(running.manifest).name
    finally:
        third.stop()
