"""How well a node keeps to its limits, and how soon it pauses and resumes.

    python -m benchmarks.limits [--quick] [--json]

Real processes on loopback. `pause_ms` and `resume_ms` run from the command on the control socket to the last local step
and to the first one. `cpu_at_N` is the share of the machine that the node and its daemon used with a limit of N
percent; `steps_at_N` is its local steps a second at that limit. `upload_at_N` is the rate, in kB/s, at which a newcomer
got a snapshot from a node that may send N kB/s; `joined` is how many of those newcomers came to train.
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
import time
from pathlib import Path

from benchmarks.common import Figures, middle, progress, run
from benchmarks.nodes import ROOT, local_steps, node, status, wait_for
from p2pnode.node.control import ask
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.status import NodeStatus

LOOK = 0.01
TASK = ("--task", str(ROOT / "examples" / "own_task.py"), "--task-option", "hidden=100000")  # 500,000 parameters
FOUNDING = (
    *TASK,
    "--policy",
    "average",
    "--round-seconds",
    "20",
)  # newcomers get snapshots, not entries


def came(place: Path, kind: str) -> NodeStatus:
    """The node's status once it has an invite and an event of this kind."""
    happened = f"an event {kind!r}"
    return wait_for(place, happened, lambda now: bool(now.invite) and any(event.kind == kind for event in now.events))


def pause_and_resume(place: Path) -> tuple[float, float]:
    """Milliseconds to the last step after a pause, and to the first after resuming."""
    begun = time.perf_counter()
    ask(place, ControlRequest("pause"))
    last, before = begun, local_steps(place)
    while time.perf_counter() - last < 1.0:
        if (now := local_steps(place)) != before:
            last, before = time.perf_counter(), now
        time.sleep(LOOK)
    paused = last - begun
    begun = time.perf_counter()
    ask(place, ControlRequest("resume"))
    wait_for(place, "a step after resuming", lambda now: any(job.steps != before for job in now.jobs.values()))
    return 1000 * paused, 1000 * (time.perf_counter() - begun)


def share_at(place: Path, percent: int, seconds: float) -> tuple[float, float]:
    """The share used and the steps a second, once a limit has settled."""
    ask(place, ControlRequest("limits", limits={"max-cpu": f"{percent}%"}))
    time.sleep(4.0)
    used, begun, before = [], time.perf_counter(), local_steps(place)
    while time.perf_counter() - begun < seconds:
        time.sleep(1.0)
        now = status(place)
        if now is not None and now.machine is not None:
            used.append(now.machine.own_cpu)
    return sum(used) / len(used), (local_steps(place) - before) / (time.perf_counter() - begun)


def snapshot_rate(root: Path, kilobytes: int) -> float:
    """The rate of a newcomer's snapshot in kB/s."""
    giver = root / f"giver{kilobytes}"
    with node(giver, "--max-upload", f"{kilobytes}k", *FOUNDING):
        invite = shlex.split(came(giver, "learning").invite)[3:]
        taker = root / f"taker{kilobytes}"
        with node(taker, *invite, *TASK):
            now = came(taker, "caught up")
            events = {event.kind: event.time for event in now.events}
            return now.traffic.received_bytes / 1000 / (events["caught up"] - events["joined"])


def measure(arguments: argparse.Namespace) -> Figures:
    repeats, seconds, rates = (4, 6.0, (500,)) if arguments.quick else (20, 20.0, (200, 500, 2000))
    figures: Figures = {}
    with tempfile.TemporaryDirectory(prefix="p2pnode-limits-") as place:
        root = Path(place)
        one = root / "one"
        with node(one, "--round-seconds", "20"):
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
    run("limits", measure)
