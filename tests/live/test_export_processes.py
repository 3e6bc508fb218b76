"""Two processes train a model with BatchNorm: what they export is as good as they say; damaged files are named."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors import safe_open

import p2pnode
from tests.live.cli_nodes import NodeProcess, pasted, wait_for

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("learning")]
LIMIT = 120.0
TASK = """
import torch
from torch import nn
from p2pnode import Task

def waves(seed, count):
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(count) % 4
    shift = torch.rand(count, 1, generator=generator) * 6.3
    clean = torch.sin(torch.arange(16) / 16 * 6.3 * (1.0 + classes[:, None]) + shift) * 3 + 7
    return {"x": clean + 0.5 * torch.randn(count, 16, generator=generator), "y": classes}

class Lift(nn.Module):
    def forward(self, x):
        return x[:, None]

class Waves(Task):
    learning_rate = 0.02
    channels = 4
    def model(self):
        return nn.Sequential(
            Lift(), nn.Conv1d(1, self.channels, 5), nn.BatchNorm1d(self.channels), nn.ReLU(), nn.Flatten(),
            nn.Linear(12 * self.channels, 4),
        )
    def data(self):
        return waves(1, 800)
    def test_data(self):
        return waves(2, 400)
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[NodeProcess]]:
    started: list[NodeProcess] = []
    yield started
    for node in started:
        node.stop()


def imported(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("waves_task", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def accuracy(task: Any, file: Path) -> float:
    """Of a user's own model with the exported state."""
    model = task.model()
    model.load_state_dict(p2pnode.load(file), strict=True)
    model.eval()
    test = task.test_data()
    return float((model(test["x"]).argmax(1) == test["y"]).float().mean())


def training(node: NodeProcess) -> dict[str, Any]:
    assert node.process.poll() is None, f"ended early: {node.out}{node.err}"
    state = node.status().get("jobs", {}).get("main", {}).get("state") or {}
    return dict(state.get("train") or {})


def test_what_is_exported_is_as_good_as_the_node_says_and_no_task_is_needed_again(
    tmp_path: Path, nodes: list[NodeProcess]
) -> None:
    file = tmp_path / "waves.py"
    file.write_text(TASK)
    task = imported(file).Waves(channels=8)
    founding = ("--task", str(file), "--task-option", "channels=8", "--round-seconds", "0.5")
    ann = NodeProcess(tmp_path, "ann", *founding, learns=True)
    nodes.append(ann)
    ben = NodeProcess(tmp_path, "ben", *pasted(ann.invite())[3:], "--task", str(file), learns=True)
    nodes.append(ben)
    for node in (ann, ben):
        wait_for("accuracy", lambda node=node: (training(node).get("accuracy") or 0.0) > 0.95, LIMIT)  # type: ignore[misc]
    assert "there is no directory" in ann.ask("export", str(tmp_path / "gone" / "w.pt"), seconds=60).stderr
    assert "must end in .safetensors or .pt" in ann.ask("export", str(tmp_path / "w.bin"), seconds=60).stderr
    running, stopped = tmp_path / "ann.safetensors", tmp_path / "ben.pt"
    assert "the whole model" in ann.ask("export", str(running), seconds=60).stdout
    with safe_open(running, "pt") as opened:
        facts = opened.metadata()
    assert facts["run"] == ann.status()["run"] and facts["task"] == "waves" and int(facts["round"]) > 1
    assert facts["job"] == "main" and facts["hash"] and facts["p2pnode"] == p2pnode.__version__
    assert abs(accuracy(task, running) - float(facts["accuracy"])) <= 0.005
    assert float(facts["accuracy"]) > 0.9

    ben.signalled(signal.SIGTERM)
    said = ben.ask("export", str(stopped), seconds=60)
    assert "as the node had saved it" in said.stdout, said.stderr
    assert f"accuracy {accuracy(task, stopped):.1%} on 400 test samples" in said.stdout
    assert accuracy(task, stopped) > 0.9 and torch.load(stopped).p2pnode["task"] == "waves"

    before, run = training(ann)["round"], ann.status()["run"]
    ann.signalled(signal.SIGKILL)
    for name in ("run.json", "book.json", "port"):
        path = ann.data_dir / name
        path.write_bytes(path.read_bytes()[:-5])
    (ann.data_dir / "daemon.json").write_bytes(b"")
    ann = NodeProcess(tmp_path, "ann", learns=True)
    nodes.append(ann)
    for line in ("it was made again from its copy", "peers met before starts empty", "old address may not work"):
        ann.says(line)
    ann.says("end that p2pd by hand")
    ann.says("resumed run")
    wait_for("further rounds", lambda: training(ann).get("round", 0) > before, LIMIT)
    assert ann.status()["run"] == run
