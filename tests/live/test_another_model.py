"""A friend whose task file has another activation stops with one line, and the founder's run is not harmed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live.cli_nodes import NodeProcess, pasted

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("cli")]
TASK = Path(__file__).parent.parent / "scenarios/other_models.py"


@pytest.fixture
def nodes() -> Iterator[list[NodeProcess]]:
    opened: list[NodeProcess] = []
    yield opened
    for one in opened:
        one.stop()


def test_another_activation_ends_the_joiner_with_one_line(tmp_path: Path, nodes: list[NodeProcess]) -> None:
    ann = NodeProcess(tmp_path, "ann", "--task", f"{TASK}:Founded", learns=True)
    nodes.append(ann)
    invite = pasted(ann.invite())
    ann.says("learning other-digits")
    bob = NodeProcess(tmp_path, "bob", argv=[*invite, "--task", f"{TASK}:Activation"], learns=True)
    nodes.append(bob)
    assert bob.ended(60) == 2
    assert bob.err.startswith("p2pnode: this node's model of 'other-digits' is not the run's: ")
    assert "an activation or another part of forward() differs" in bob.err
    assert bob.err.count("\n") == 1
    same = NodeProcess(tmp_path, "carol", argv=[*invite, "--task", f"{TASK}:Founded"], learns=True)
    nodes.append(same)
    same.says("learning other-digits")
    ann.says("round .*accuracy")
    for one in (ann, same):
        one.signalled(signal.SIGTERM)
        assert one.process.returncode == 0, one.err
