"""Real nodes on loopback, one training at full speed: how late its event loop is, and how long calls to it take."""

from __future__ import annotations

import json
import shlex
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path

import psutil

from benchmarks.common import Figures, percentile, progress
from benchmarks.nodes import WAIT, log_tail, node, wait_for
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.status import NodeStatus

DIGITS = ["--task", "digits"]
BIG = {"width": 256, "layers": 7, "context": 64, "batch_size": 8}  # 5.6 M parameters
TEXT = ["--task", "gpt", "--data", __file__]
TEXT += [word for name, value in BIG.items() for word in ("--task-option", f"{name}={value}")]


def probed(place: Path, calls: int, arguments: list[str]) -> AbstractContextManager[psutil.Popen]:
    probe = {"PROBE_FILE": str(result_of(place)), "PROBE_CALLS": str(calls)}
    return node(place, *arguments, module="benchmarks.probed_node", **probe)


def result_of(place: Path) -> Path:
    return place.with_name(f"{place.name}.json")


def results(place: Path) -> list[float]:
    """What the probe of the node in `place` has measured, once it has written it down."""
    deadline = time.monotonic() + WAIT
    while not result_of(place).exists():
        if time.monotonic() > deadline:
            raise LocalProblem(f"{place.name}: no measurement within {WAIT:.0f} s; its log ends in\n{log_tail(place)}")
        time.sleep(0.1)
    return list(json.loads(result_of(place).read_text()))


def measure_node(learns: bool, calls: int, task: list[str]) -> tuple[list[float], list[float]]:
    """Loop lags of a node and round trips of calls to it, in ms; it trains as fast as it can, or not at all."""
    progress(f"{calls} calls to a node that {'trains' if learns else 'does not train'}")
    with tempfile.TemporaryDirectory(prefix="p2pnode-bench-") as directory:
        trainer, caller = Path(directory, "trainer"), Path(directory, "caller")
        with probed(trainer, 0, task if learns else ["--meet-only"]):
            ready = wait_for(trainer, "training", lambda now: bool(now.invite) and (not learns or trains(now)))
            with probed(caller, calls, [*shlex.split(ready.invite)[3:], "--meet-only"]):
                times = results(caller)
                return results(trainer), times


def trains(now: NodeStatus) -> bool:
    return any((job.state.training.round or 0) >= 3 for job in now.jobs.values())


def measure_nodes(calls: int, with_text: bool) -> Figures:
    """The worst of the tasks, and each task; `…_idle` is a node that does not train."""
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
