"""Real nodes on loopback, one training at full speed: how late its event loop is, how long calls to it take."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import Figures, percentile, progress
from benchmarks.network import wait_for
from p2pnode.wire.status import NodeStatus

LIMIT = 120.0
LOOPBACK = "/ip4/127.0.0.1/tcp/0"
DIGITS = ["--task", "digits"]
BIG = {"width": 256, "layers": 7, "context": 64, "batch_size": 8}  # 5.6 M parameters
TEXT = ["--task", "text", "--data", __file__]
TEXT += [word for name, value in BIG.items() for word in ("--task-option", f"{name}={value}")]


def start_probed(root: Path, name: str, calls: int, arguments: list[str]) -> subprocess.Popen[bytes]:
    place = ["--name", name, "--data-dir", str(root / name), "--log-format", "json", "--listen", LOOPBACK]
    probe = {"PROBE_FILE": str(root / f"{name}.json"), "PROBE_CALLS": str(calls)}
    with (root / f"{name}.log").open("wb") as log:
        command = [sys.executable, "-m", "benchmarks.probed_node", *place, *arguments]
        return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **probe})


def wait_for_file(file: Path) -> list[float]:
    deadline = time.monotonic() + LIMIT
    while not file.exists():
        if time.monotonic() > deadline:
            raise AssertionError(f"{file} did not come; see the logs beside it")
        time.sleep(0.1)
    return list(json.loads(file.read_text()))


def measure_node(learns: bool, calls: int, task: list[str]) -> tuple[list[float], list[float]]:
    """Loop lags of a node and round trips of calls to it, in ms; it trains as fast as it can, or only meets."""
    progress(f"{calls} calls to a node that {'trains' if learns else 'does not train'}")
    with tempfile.TemporaryDirectory(prefix="p2pnode-bench-") as directory:
        root = Path(directory)
        nodes = [start_probed(root, "trainer", 0, task if learns else ["--meet-only"])]
        try:
            ready = wait_for(root, "trainer", lambda told: bool(told.invite) and (not learns or trains(told)))
            nodes.append(start_probed(root, "caller", calls, [*shlex.split(ready.invite)[3:], "--meet-only"]))
            times = wait_for_file(root / "caller.json")
            return wait_for_file(root / "trainer.json"), times
        finally:
            for node in nodes:
                node.terminate()
            for node in nodes:
                node.wait(20)


def trains(told: NodeStatus) -> bool:
    return any((job.state.round or 0) >= 3 for job in told.jobs.values())


def measure_nodes(calls: int, with_text: bool) -> Figures:
    """The worst of the tasks, and each; `…_idle` is of a node that only meets."""
    figures: Figures = {}
    cases = {"idle": [], "digits": DIGITS, **({"text": TEXT} if with_text else {})}
    lags, trips = {}, {}
    for mark, task in cases.items():
        late, times = measure_node(bool(task), calls, task)
        lags[mark], trips[mark] = percentile(late, 0.99), percentile(times, 0.99)
        figures[f"loop_lag_p99_ms_{mark}"] = lags[mark]
        figures[f"call_p50_ms_{mark}"] = percentile(times, 0.5)
        figures[f"call_p99_ms_{mark}"] = trips[mark]
    return {
        "loop_lag_p99_ms": max(lag for mark, lag in lags.items() if mark != "idle"),
        "call_p99_ms_while_training": max(trip for mark, trip in trips.items() if mark != "idle"),
        **figures,
    }
