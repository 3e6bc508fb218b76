"""Nodes in processes of their own, started as a user starts them, on loopback."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from p2pnode.node.control import ask
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.status import NodeStatus

WAIT = 120.0  # seconds for a node to reach a state
ROOT = Path(__file__).parent.parent
LOOPBACK = "/ip4/127.0.0.1/tcp/0"


@contextmanager
def node(place: Path, *arguments: str, module: str = "p2pnode", **environment: str) -> Iterator[psutil.Popen]:
    """Run a node with its data in `place` and its output in `place`.log; it is ended afterwards."""
    command = [sys.executable, "-m", module, "--name", place.name, "--data-dir", str(place), "--listen", LOOPBACK]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("P2PNODE_")}
    variables = {**inherited, "OMP_NUM_THREADS": "1", **environment}
    with log_of(place).open("wb") as log:
        process = psutil.Popen([*command, *arguments], stdout=log, stderr=log, env=variables, cwd=ROOT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(30)


def log_of(place: Path) -> Path:
    return place.with_name(f"{place.name}.log")


def status(place: Path) -> NodeStatus | None:
    """The status of the node with its data in `place`; None while it does not answer."""
    try:
        return ask(place, ControlRequest("status")).status
    except LocalProblem:
        return None


def wait_for(
    place: Path, what: str, happened: Callable[[NodeStatus], bool], seconds: float = WAIT, pause: float = 0.01
) -> NodeStatus:
    """The node's status once `happened` holds; LocalProblem with the end of its log when that takes too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        now = status(place)
        if now is not None and happened(now):
            return now
        time.sleep(pause)
    raise LocalProblem(f"{place.name}: not within {seconds:.0f} s: {what}; its log ends in\n{log_tail(place)}")


def log_tail(place: Path) -> str:
    return log_of(place).read_text(errors="replace")[-2000:]


def local_steps(place: Path) -> int:
    """How many training steps the node has done."""
    now = status(place)
    return 0 if now is None else sum(job.steps for job in now.jobs.values())
