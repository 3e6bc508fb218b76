"""A real node that is paused and resumed: the count of its local steps stands still, and moves again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from p2pnode.node.control import ask
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.status import NodeStatus
from tests.live.cli_nodes import NodeProcess, wait_for

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("learning")]
STILL = 2.0  # seconds without a step


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    process = NodeProcess(tmp_path, "guest", "--round-seconds", "30", learns=True)
    yield process
    process.stop()


def status(process: NodeProcess) -> NodeStatus | None:
    try:
        return ask(process.data_dir, ControlRequest("status")).status
    except Exception:  # not there yet
        return None


def steps(process: NodeProcess) -> int:
    found = status(process)
    return 0 if found is None else sum(job.steps for job in found.jobs.values())


def stands_still(process: NodeProcess) -> bool:
    before = steps(process)
    time.sleep(STILL)
    return steps(process) == before


def command(process: NodeProcess, *words: str) -> str:
    done = process.ask(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_pause_stops_the_steps_in_the_middle_of_a_round_and_outlives_a_restart(
    node: NodeProcess, tmp_path: Path
) -> None:
    wait_for("some steps of a long round", lambda: steps(node) > 20, 90)
    assert "resume" in ask(node.data_dir, ControlRequest("pause")).said
    wait_for("no more steps", lambda: stands_still(node), 30)
    before = steps(node)
    now = status(node)
    assert now is not None and now.paused == "paused by you"
    assert (now.jobs["main"].state.training.round or 0) >= 1, "what was done is published"
    assert now.machine is not None and 0 <= now.machine.own_cpu <= now.machine.cpu <= 1
    assert "working" in command(node, "resume")
    wait_for("steps after resuming", lambda: steps(node) > before, 60)

    assert "until `resume`" in command(node, "pause")
    command(node, "leave")
    assert node.ended() == 0
    again = NodeProcess(tmp_path, "guest", learns=True)
    try:
        again.says("resting: paused by you")
        assert "cpu 20%" in command(again, "limits", "--max-cpu", "20%")
        assert "working" in command(again, "resume")
        wait_for("steps after the restart", lambda: steps(again) > before, 90)
    finally:
        again.stop()
