"""Four processes, four policies, one critic: one is killed, one raises, and the others go on."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.browser import launched, opened, picture, until
from tests.live.cli_nodes import NodeProcess, pasted, wait_for

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.xdist_group("learning")]
LIMIT = 90.0
FILE = Path(__file__).parents[2] / "examples" / "four_policies.py"
BROKEN = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(FILE.parents[1])!r})
from examples.four_policies import Short

class Broken(Short):
    def env(self):
        env = super().env()
        step = env.step
        def fragile(action):
            if Path(__file__).with_name("push").exists():
                raise RuntimeError("the robot fell off the table")
            return step(action)
        env.step = fragile
        return env
"""


@pytest.fixture
def nodes() -> Iterator[list[NodeProcess]]:
    started: list[NodeProcess] = []
    yield started
    for node in started:
        node.stop()


def tables(node: NodeProcess) -> dict[str, list[list[Any]]]:
    assert node.process.poll() is None, f"ended early: {node.out}{node.err}"
    job = node.status().get("jobs", {}).get("critic", {})
    return {table["title"]: list(table["rows"]) for table in job.get("tables", ())}


def laptops(node: NodeProcess) -> dict[str, list[Any]]:
    """The rows of all laptops that a node shows, by their tasks."""
    return {row[1]: row for row in tables(node).get("laptops", ())}


def test_one_is_killed_and_one_raises_and_the_others_go_on(tmp_path: Path, nodes: list[NodeProcess]) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    job = "critic,kind=actors,lease=4,rollout=256,critic-steps=4,width=16"
    founder = NodeProcess(tmp_path, "ann", "--job", job, "--task", f"{FILE}:Short", learns=True)
    nodes.append(founder)
    invite = pasted(founder.invite())[3:]
    for name, task in (("ben", f"{FILE}:Long"), ("cat", str(tmp_path / "broken.py:Broken")), ("dan", f"{FILE}:Heavy")):
        nodes.append(NodeProcess(tmp_path, name, *invite, "--task", task, "--dashboard", "0", learns=True))
    _, ben, cat, dan = nodes
    wait_for("all laptops at ben", lambda: len(laptops(ben)) == 4, LIMIT)
    (tmp_path / "push").touch()
    assert cat.ended(LIMIT) == 1
    assert "env().step() raised RuntimeError: the robot fell off the table" in cat.err
    founder.process.kill()
    before = {node.data_dir.name: laptops(node) for node in (ben, dan)}
    term = wait_for("a new owner", lambda: (rows := tables(ben).get("critic")) and rows[0][1], LIMIT)
    assert term >= 1
    for node, task in ((ben, "Long"), (dan, "Heavy")):
        more = before[node.data_dir.name][task][4] + 1024
        wait_for(f"{task} to go on", lambda node=node, task=task, more=more: laptops(node)[task][4] > more, LIMIT)  # type: ignore[misc]
    listed = json.loads(ben.ask("jobs", "--json").stdout)["jobs"]["critic"]
    assert (listed["kind"], listed["condition"]) == ("actors", "running")
    assert "Heavy" in ben.ask("jobs").stdout, "a table of all laptops at any node"
    assert_page_shows_the_table(str(ben.status()["page"]))
    made = laptops(ben)["Long"][4]
    ben.signalled(signal.SIGTERM)
    assert ben.process.returncode == 0, ben.err
    nodes.append(NodeProcess(tmp_path, "ben", learns=True))  # it remembers run and task
    wait_for("ben to go on", lambda: laptops(nodes[-1]).get("Long", [0] * 5)[4] >= made, LIMIT)


def assert_page_shows_the_table(link: str) -> None:
    with launched() as browser, opened(browser, link) as page:
        until(page, "!document.getElementById('tab-jobs').hidden")
        page.click("#tab-jobs")
        until(page, "document.getElementById('jobs').textContent.includes('steps a second')")
        until(page, "document.getElementById('jobs').textContent.includes('Heavy')")
        picture(page, "laptops")
