"""Processes of one run with paths: they share the work, answer commands, and outlive the worker of a path."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.cli_nodes import NodeProcess, pasted, wait_for
from tests.scenarios.test_paths import write_texts

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.xdist_group("learning")]
LIMIT = 120.0
SMALL = [
    word
    for pair in ("width=16", "layers=2", "heads=2", "context=24", "test_windows=32", "warmup=5")
    for word in ("--task-option", pair)
]


@pytest.fixture
def nodes() -> Iterator[list[NodeProcess]]:
    started: list[NodeProcess] = []
    yield started
    for node in started:
        node.stop()


def paths_of(node: NodeProcess) -> dict[str, dict[str, Any]]:
    """The table of paths that a node shows, by path; empty while it has none."""
    assert node.process.poll() is None, f"ended early: {node.out}{node.err}"
    tables = node.status().get("jobs", {}).get("paths", {}).get("tables", ())
    return {
        row[0]: dict(zip([name for name, _ in table["columns"]], row, strict=True))
        for table in tables
        if table["title"] == "paths"
        for row in table["rows"]
    }


def trained_by(node: NodeProcess) -> list[str]:
    return [path for path, row in paths_of(node).items() if row["here"] == "trains it" and row["loss"] is not None]


def test_two_processes_train_two_paths_and_one_goes_on_alone(tmp_path: Path, nodes: list[NodeProcess]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write_texts(data, ("py", "prose"))
    founding = ["--paths", "1x2", "--task", "gpt", "--data", str(data), "--round-seconds", "1", *SMALL]
    ann = NodeProcess(tmp_path, "ann", *founding, learns=True)
    nodes.append(ann)
    ben = NodeProcess(tmp_path, "ben", *pasted(ann.invite())[3:], "--data", str(data), learns=True)
    nodes.append(ben)

    def one_each() -> bool:
        return sorted([trained_by(ann), trained_by(ben)]) == [["0"], ["1"]]

    wait_for("one path at each node", one_each, LIMIT)

    router = ann.ask("router", seconds=60.0)
    assert router.returncode == 0 and "right by beginning" in router.stdout, router.stderr
    done = ann.ask("export", str(tmp_path / "all.safetensors"), "--path", "all", seconds=120.0)
    assert done.returncode == 0 and done.stdout.count("wrote the whole model") == 2, done.stderr
    wrong = ann.ask("export", str(tmp_path / "all.safetensors"), "--path", "9", seconds=60.0)
    assert wrong.returncode != 0 and "there is no path '9'" in wrong.stderr
    text = ben.ask("generate", "def f1(x):", "--length", "12", "--seed", "1", seconds=120.0)
    assert text.returncode == 0 and text.stdout.startswith("def f1(x):"), text.stderr

    ben.process.send_signal(signal.SIGKILL)
    ben.process.wait()
    wait_for("that ann trains both paths", lambda: sorted(trained_by(ann)) == ["0", "1"], LIMIT)
    ann.signalled(signal.SIGTERM, 30.0)
    left = [name for name in ann.left_behind() if "torchinductor" not in name]  # torch makes that folder by itself
    assert left == []
