"""How good a guest a node is: how soon it pauses and works again, and how well it keeps to its limits.

    python -m benchmarks.guest [--quick] [--json]

Real processes on loopback. `pause_ms`, `resume_ms` run from the order on the control socket to the last local step, and
to the first. `cpu_at_N` is the share of the machine the node used where N percent were allowed, its daemon included;
`steps_at_N` its local steps a second then. `upload_at_N` is the rate, in kB/s, at which a newcomer got a snapshot from
a node that may send N kB/s; `joined` how many of those newcomers came to learn.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.common import Figures, middle, progress, run
from p2pnode.node.control import ask
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.status import NodeStatus

WAIT = 90.0
LOOK = 0.01
ROOT = Path(__file__).parent.parent
TASK = ("--task", str(ROOT / "examples" / "own_task.py"), "--task-option", "hidden=100000")  # 500,000 parameters
FOUNDING = (*TASK, "--policy", "average", "--round-seconds", "20")  # which gives newcomers snapshots, never entries


@contextmanager
def node(place: Path, *arguments: str) -> Iterator[Path]:
    """A node in a process of its own, ended afterwards."""
    command = [sys.executable, "-m", "p2pnode", "--data-dir", str(place), "--listen", "/ip4/127.0.0.1/tcp/0"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    with Path(f"{place}.out").open("wb") as out:
        process = subprocess.Popen([*command, *arguments], stdout=out, stderr=out, env=environ, cwd=ROOT)
        try:
            yield place
        finally:
            process.terminate()
            process.wait(30)


def status(place: Path) -> NodeStatus | None:
    try:
        return ask(place, ControlRequest("status")).status
    except LocalProblem:
        return None


def came(place: Path, kind: str) -> NodeStatus:
    """The node's status once it has said so."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        now = status(place)
        if now is not None and now.invite and any(event.kind == kind for event in now.events):
            return now
        time.sleep(0.05)
    said = Path(f"{place}.out").read_text()[-2000:]
    raise SystemExit(f"the node on {place} did not come to say {kind!r}:\n{said}")


def steps(place: Path) -> int:
    now = status(place)
    return 0 if now is None else sum(job.steps for job in now.jobs.values())


def pause_and_resume(place: Path) -> tuple[float, float]:
    """Milliseconds to the last step after a pause, and to the first after resuming."""
    begun = time.perf_counter()
    ask(place, ControlRequest("pause"))
    last, before = begun, steps(place)
    while time.perf_counter() - last < 1.0:
        if (now := steps(place)) != before:
            last, before = time.perf_counter(), now
        time.sleep(LOOK)
    paused = last - begun
    begun = time.perf_counter()
    ask(place, ControlRequest("resume"))
    while steps(place) == before:
        time.sleep(LOOK)
    return 1000 * paused, 1000 * (time.perf_counter() - begun)


def share_at(place: Path, percent: int, seconds: float) -> tuple[float, float]:
    """The share used and the steps a second, once a limit has settled."""
    ask(place, ControlRequest("limits", limits={"max-cpu": f"{percent}%"}))
    time.sleep(4.0)
    used, begun, before = [], time.perf_counter(), steps(place)
    while time.perf_counter() - begun < seconds:
        time.sleep(1.0)
        now = status(place)
        if now is not None and now.machine is not None:
            used.append(now.machine.own_cpu)
    return sum(used) / len(used), (steps(place) - before) / (time.perf_counter() - begun)


def snapshot_rate(root: Path, kilobytes: int) -> float:
    """The rate of a newcomer's snapshot in kB/s."""
    with node(root / f"giver{kilobytes}", "--max-upload", f"{kilobytes}k", *FOUNDING) as giver:
        told = came(giver, "learning")
        invite = told.invite.split("p2pnode", 1)[1].split()
        with node(root / f"taker{kilobytes}", *invite, *TASK) as taker:
            now = came(taker, "caught up")
            events = {event.kind: event.time for event in now.events}
            return now.traffic.received_bytes / 1000 / (events["caught up"] - events["joined"])


def measure(arguments: argparse.Namespace) -> Figures:
    repeats, seconds, rates = (4, 6.0, (500,)) if arguments.quick else (20, 20.0, (200, 500, 2000))
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="p2pnode-guest-") as place:
        root = Path(place)
        with node(root / "one", "--round-seconds", "20") as one:
            came(one, "progress")
            pairs = [pause_and_resume(one) for _ in range(repeats)]
            for name, values in (("pause_ms", [pair[0] for pair in pairs]), ("resume_ms", [pair[1] for pair in pairs])):
                figures |= {name: middle(values), f"{name}_most": max(values)}
            progress(f"pause {figures['pause_ms']:.0f} ms, resume {figures['resume_ms']:.0f} ms")
            for percent in (100, 25, 10):
                share, speed = share_at(one, percent, seconds)
                figures |= {f"cpu_at_{percent}": share, f"steps_at_{percent}": speed}
                progress(f"{percent} % allowed: {share:.1%} used, {speed:.0f} steps a second")
        joined = 0
        for kilobytes in rates:
            figures[f"upload_at_{kilobytes}"] = snapshot_rate(root, kilobytes)
            joined += 1
            progress(f"{kilobytes} kB/s allowed: {figures[f'upload_at_{kilobytes}']:.0f} kB/s")
        return {**figures, "joined": joined}


if __name__ == "__main__":
    run("guest", measure)
