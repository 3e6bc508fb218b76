"""The demo's node processes, what they say of themselves, and the live table."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from p2pnode.node.control import ask
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.status import MAIN_JOB, JobStatus, NodeStatus

NAMES = ("alice", "bob", "carol", "dave")
SPLIT = "dirichlet:0.3"
STEP_LIMIT = 40.0  # seconds an act may take before the demo gives up
LOOK_EVERY = 0.5
LOOPBACK = "/ip4/127.0.0.1/tcp/0"


class Failed(Exception):
    """An act did not come to its end, or what it should show was not so."""


@dataclass
class Sample:
    """A point of a curve."""

    second: float
    together: float | None
    alone: float | None


@dataclass
class DemoNode:
    """One node: the command that runs it, its process now, and what it last said of itself."""

    name: str
    part: int
    data_dir: Path
    command: list[str]
    process: subprocess.Popen[bytes]
    status: NodeStatus | None = None
    learned: JobStatus | None = None  # the last that was heard, also while the node is gone
    peer_id: str = ""
    alone: float | None = None  # accuracy of the same training without the others
    received_before: int = 0  # bytes, by processes that were killed
    samples: list[Sample] = field(default_factory=list)

    @classmethod
    def start(cls, name: str, root: Path, arguments: list[str]) -> DemoNode:
        part = NAMES.index(name)
        place = ["--name", name, "--data-dir", str(root / name), "--listen", LOOPBACK, "--log-format", "json"]
        share = ["--split", SPLIT, "--part", f"{part + 1}/{len(NAMES)}"]
        command = [sys.executable, "-m", "p2pnode", *place, *share, *arguments]
        return cls(name, part, root / name, command, _spawned(command, root / f"{name}.log"))

    def kill(self) -> None:
        """Kill a node as if the power went: no goodbye, nothing saved."""
        if self.status is not None:
            self.received_before += self.status.traffic.received_bytes
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.status = None

    def start_again(self) -> None:
        """The same command."""
        self.process = _spawned(self.command, self.data_dir.with_suffix(".log"))

    def look(self) -> None:
        if self.process.poll() not in (None, -signal.SIGKILL):
            raise Failed(f"{self.name} ended with exit code {self.process.returncode}")
        try:
            self.status = ask(self.data_dir, ControlRequest("status")).status
        except LocalProblem:
            self.status = None  # not up yet, or gone
        if self.status is not None:
            self.peer_id = self.status.id
            self.learned = self.status.jobs.get(MAIN_JOB, self.learned)
        if self.learning:
            _step_back(self.process.pid)

    @property
    def learning(self) -> bool:
        return self.status is not None and MAIN_JOB in self.status.jobs and self.rounds > 0

    @property
    def rounds(self) -> int:
        return self.learned.state.training.round or 0 if self.learned is not None else 0

    @property
    def steps(self) -> int:
        return self.learned.steps if self.learned is not None else 0

    @property
    def peers(self) -> int:
        return 0 if self.status is None else sum(peer.present for peer in self.status.peers)

    @property
    def received(self) -> int:
        return self.received_before + (self.status.traffic.received_bytes if self.status is not None else 0)


def _step_back(pid: int) -> None:
    """Four nodes on a small machine: those that train let the one that starts go first."""
    with contextlib.suppress(psutil.Error, OSError):
        for thread in psutil.Process(pid).threads():
            os.setpriority(os.PRIO_PROCESS, thread.id, 10)


def _spawned(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("P2PNODE_")}
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, env=environment)


class Stage:
    """The live picture, and waiting for things to happen in it."""

    def __init__(self, console: Console, watch: Callable[[], None] = lambda: None) -> None:
        self.nodes: list[DemoNode] = []
        self.line = ""
        self.begun = time.monotonic()
        self.watch = watch
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=False)
        self._said = ""
        self._printed = self.begun

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def __enter__(self) -> Stage:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.update(self._picture())
            self._live.stop()
        else:
            self._console.print(self._picture())

    def until(self, what: str, happened: Callable[[], bool], limit: float = STEP_LIMIT) -> None:
        """Look at the nodes again and again until something happens; Failed after the limit."""
        self.line = what
        deadline = time.monotonic() + limit
        while True:
            self.look()
            if happened():
                return
            if time.monotonic() > deadline:
                raise Failed(f"not within {limit:.0f} s: {what}")
            time.sleep(LOOK_EVERY)

    def look(self) -> None:
        for node in self.nodes:
            node.look()
            if node.learned is not None:
                node.samples.append(Sample(self.seconds, node.learned.state.training.accuracy, node.alone))
        self.watch()
        self._draw()

    def _draw(self) -> None:
        if self._console.is_terminal:
            self._live.update(self._picture())
        elif self.line != self._said:
            self._said = self.line
            self._console.print(f"{self.seconds:5.1f} s  {self.line}")
        elif time.monotonic() - self._printed > 10:
            self._printed = time.monotonic()
            self._console.print(self._picture())

    def _picture(self) -> Group:
        headings = ("node", "state", "round", "local steps", "own samples", "alone", "together", "peers", "received")
        table = Table(*headings)
        for node in self.nodes:
            table.add_row(*_row(node))
        return Group(table, Text(self.line, style="bold"))


def _row(node: DemoNode) -> list[str]:
    learned = node.learned
    state: str
    if node.status is not None:
        state = node.status.condition
    else:
        state = "starting" if node.process.poll() is None else "killed" if node.process.returncode < 0 else "left"
    return [
        node.name, state, str(node.rounds), str(node.steps), "" if learned is None else str(learned.training.samples),
        percent(node.alone), percent(None if learned is None else learned.state.training.accuracy),
        str(node.peers), f"{node.received / 1000:.0f} kB",
    ]  # fmt: skip


def percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


@contextlib.contextmanager
def ended_afterwards(stage: Stage) -> Iterator[None]:
    """Whatever happens, no process of the demo stays behind."""
    try:
        yield
    finally:
        for node in stage.nodes:
            node.process.terminate()
        for node in stage.nodes:
            try:
                node.process.wait(10)
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()
