"""A model of which each process may hold only a half: it learns, while servers are killed, stopped and come back."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.cli_nodes import NodeProcess, pasted, wait_for

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.xdist_group("learning")]
LIMIT = 60.0
MODEL = "big=gpt,kind=pipeline,width=64,layers=4,heads=2,context=32,memory=5MB,batch=8"  # two blocks fit into 5 MB


@pytest.fixture
def nodes() -> Iterator[list[NodeProcess]]:
    started: list[NodeProcess] = []
    yield started
    for node in started:
        node.stop()


def figures(node: NodeProcess) -> dict[str, Any]:
    assert node.process.poll() is None, f"ended early: {node.out}{node.err}"
    state = node.status().get("jobs", {}).get("big", {}).get("state", {})
    return {figure["name"]: figure["value"] for figure in state.get("figures", ())}


def done(node: NodeProcess) -> int:
    return int(figures(node).get("micro_batches") or 0)


def goes_on(node: NodeProcess, count: int) -> None:
    """The driver trains some more micro-batches."""
    goal = done(node) + count
    wait_for(f"{count} more micro-batches", lambda: done(node) >= goal, LIMIT)


def test_a_model_larger_than_each_process_learns_through_kills(tmp_path: Path, nodes: list[NodeProcess]) -> None:
    text, rng = tmp_path / "words.txt", random.Random(0)
    text.write_text(" ".join(rng.choice(["alpha", "beta", "gamma", "delta"]) for _ in range(20_000)))
    ann = NodeProcess(tmp_path, "ann", "--job", MODEL, "--data", str(text), learns=True)
    nodes.append(ann)
    invite = pasted(ann.invite())[3:]
    helper = [*invite, "--serve-only", "--job", "big,kind=pipeline,memory=5MB"]
    ben, cat, dan = (NodeProcess(tmp_path, name, *helper, learns=True) for name in ("ben", "cat", "dan"))
    nodes += [ben, cat, dan]
    goes_on(ann, 20)
    first = figures(ann)["loss"]
    for node in nodes:
        wait_for(f"blocks at {node.data_dir.name}", lambda node=node: "-" in str(figures(node).get("span")), LIMIT)  # type: ignore[misc]
        begin, end = str(figures(node)["span"]).split("-")
        assert int(end) - int(begin) + 1 == 2, "what fits into its memory, and no more"
    ben.process.send_signal(signal.SIGKILL)
    goes_on(ann, 40)
    cat.process.send_signal(signal.SIGSTOP)
    goes_on(ann, 40)
    cat.process.send_signal(signal.SIGCONT)
    goes_on(ann, 40)
    found = figures(ann)
    assert found["lost"] == 0
    assert found["loss"] < first - 0.5, "it learns all the time"
