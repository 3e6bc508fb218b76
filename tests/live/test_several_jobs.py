"""Two processes, one run, two models: founded by flags, joined by the invite, listed by `p2pnode jobs`."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.live.cli_nodes import NodeProcess, pasted, wait_for

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("learning")]
LIMIT = 90.0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[NodeProcess]]:
    started: list[NodeProcess] = []
    yield started
    for node in started:
        node.stop()


def jobs_of(node: NodeProcess) -> dict[str, dict[str, Any]]:
    assert node.process.poll() is None, f"ended early: {node.out}{node.err}"
    return dict(node.status().get("jobs", {}))


def trains(node: NodeProcess, name: str, more_than: int = 1) -> bool:
    """Whether a job has done rounds and taken in entries of others."""
    job = jobs_of(node).get(name, {})
    return bool((job.get("state", {}).get("train") or {}).get("round", 0) > more_than and job["train"]["entries"])


def test_two_models_side_by_side_and_one_that_fails_does_not_end_the_other(
    tmp_path: Path, nodes: list[NodeProcess]
) -> None:
    small, wide = "small=digits,hidden=8", "wide=digits,hidden=64"
    ann = NodeProcess(tmp_path, "ann", "--job", small, "--job", wide, "--round-seconds", "0.5", learns=True)
    nodes.append(ann)
    invite = pasted(ann.invite())[3:]
    ben = NodeProcess(tmp_path, "ben", *invite, learns=True)
    nodes.append(ben)
    for node in (ann, ben):
        for name in ("small", "wide"):
            wait_for(f"{name} at {node.data_dir.name}", lambda node=node, name=name: trains(node, name), LIMIT)  # type: ignore[misc]
    listed = json.loads(ben.ask("jobs", "--json").stdout)["jobs"]
    assert list(listed) == ["small", "wide"]
    assert {job["condition"] for job in listed.values()} == {"running"}
    assert listed["wide"]["train"]["parameters"] > listed["small"]["train"]["parameters"]
    table = ben.ask("jobs").stdout
    assert "small" in table
    assert "compute idle" in table
    assert (ben.data_dir / "runs" / ben.status()["run"] / "wide" / "progress").is_dir()

    eve = NodeProcess(tmp_path, "eve", *invite, "--job", "wide=digits,policy=gossip", learns=True)
    nodes.append(eve)
    one_only = NodeProcess(tmp_path, "cat", *invite, "--only", "wide", "--until", "rounds:3", learns=True)
    nodes.append(one_only)
    ended = wait_for(
        "the end of one job", lambda: (job := jobs_of(eve).get("wide", {})).get("condition") == "ended" and job, LIMIT
    )
    assert "--policy gossip contradicts the run" in ended["reason"]
    wait_for("the other job to go on", lambda: trains(eve, "small"), LIMIT)
    assert "job ended" in eve.out or "wide: " in eve.out
    assert one_only.ended(LIMIT) == 0, one_only.err
    assert "3 rounds" in one_only.out
    assert not list(one_only.data_dir.glob("runs/*/small/progress"))

    written = tmp_path / "wide.safetensors"
    done = ann.ask("export", str(written), "--job", "wide", seconds=60.0)
    assert done.returncode == 0, done.stderr
    assert written.stat().st_size > 4 * listed["wide"]["train"]["parameters"]
    wrong = ann.ask("log", "--job", "third")
    assert wrong.returncode != 0
    assert "no job 'third'" in wrong.stderr
    for node in (eve, ben, ann):
        node.signalled(signal.SIGTERM)
        assert node.process.returncode == 0, node.err


def test_a_job_that_a_new_run_does_not_have_is_refused_before_anything_is_saved(
    tmp_path: Path, nodes: list[NodeProcess]
) -> None:
    node = NodeProcess(tmp_path, "ann", "--found", "--job", "a=digits", "--only", "b", learns=True)
    nodes.append(node)
    assert node.ended(LIMIT) == 2
    assert "the run has no job 'b'; known are a" in node.err
    assert not (node.data_dir / "run.json").exists()
