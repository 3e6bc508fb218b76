"""A local swarm of four nodes, live: four processes, each with its own libp2p daemon, find each other.

`make demo` runs it. Act 1: a founder starts, three friends paste its invite. Act 2: one node's daemon is killed; the
node notices, replaces it and is back under the same identity. Act 3: all leave. Exit code 0 only if all that happened.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from p2pnode.errors import LocalProblem
from p2pnode.node.control import ControlRequest, ask
from p2pnode.node.status import Status

NAMES = ("alice", "bob", "carol", "dave")
STEP_LIMIT = 60.0  # seconds an act may take before the demo gives up
LOOPBACK = "/ip4/127.0.0.1/tcp/0"


@dataclass
class DemoNode:
    """One node process and what it last said of itself."""

    name: str
    data_dir: Path
    process: subprocess.Popen[bytes]
    begun: float
    status: Status | None = None
    saw_all_after: float | None = None

    def look(self) -> Status | None:
        try:
            self.status = ask(self.data_dir, ControlRequest("status")).status
        except LocalProblem:
            self.status = None  # not up yet, or already gone
        return self.status

    @property
    def peers(self) -> int:
        status = self.status
        if status is None or status.condition != "connected":
            return 0
        return sum(peer.present and peer.heard_seconds_ago is not None for peer in status.peers)

    def daemon(self) -> psutil.Process:
        return next(child for child in psutil.Process(self.process.pid).children(True) if child.name() == "p2pd")


class Failed(Exception):
    """An act did not come to its end."""


def start_node(name: str, root: Path, arguments: list[str]) -> DemoNode:
    data_dir = root / name
    log = (root / f"{name}.log").open("wb")
    command = [sys.executable, "-m", "p2pnode", "--name", name, "--data-dir", str(data_dir), "--listen", LOOPBACK]
    process = subprocess.Popen([*command, "--log-format", "json", *arguments], stdout=log, stderr=log)
    return DemoNode(name, data_dir, process, time.monotonic())


class Stage:
    """The live picture, and waiting for things to happen in it."""

    def __init__(self, console: Console) -> None:
        self.nodes: list[DemoNode] = []
        self.line = ""
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, transient=False)
        self._said = ""

    def __enter__(self) -> Stage:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._draw()
            self._live.stop()
        else:
            self._console.print(self._picture())

    def until(self, what: str, happened: Callable[[], bool], only: DemoNode | None = None) -> None:
        """Look at the nodes (or at one) again and again until something happens; Failed after the limit."""
        self.line = what
        deadline = time.monotonic() + STEP_LIMIT
        while True:
            self._look(self.nodes if only is None else [only])
            if happened():
                return
            if time.monotonic() > deadline:
                raise Failed(f"not within {STEP_LIMIT:.0f} s: {what}")
            time.sleep(0.1)

    def _look(self, nodes: list[DemoNode]) -> None:
        for node in nodes:
            node.look()
            if node.peers == len(NAMES) - 1 and node.saw_all_after is None:
                node.saw_all_after = time.monotonic() - node.begun
        self._draw()

    def _draw(self) -> None:
        if self._console.is_terminal:
            self._live.update(self._picture())
        elif self.line != self._said:
            self._said = self.line
            self._console.print(self.line)

    def _picture(self) -> Group:
        table = Table("node", "process", "peer id", "state", "sees", "all seen after", "daemons", "sent", "received")
        for node in self.nodes:
            table.add_row(*_row(node))
        return Group(table, Text(self.line, style="bold"))


def _row(node: DemoNode) -> list[str]:
    status = node.status
    if status is None:
        return [node.name, str(node.process.pid), "", "starting" if node.process.poll() is None else "left", *[""] * 5]
    after = "" if node.saw_all_after is None else f"{node.saw_all_after:.1f} s"
    sent, received = status.traffic.sent_bytes, status.traffic.received_bytes
    sees = f"{node.peers} of {len(NAMES) - 1}"
    identity = f"…{status.id[-8:]}"
    daemons = str(status.daemon_starts)
    return [
        node.name, str(node.process.pid), identity, status.condition, sees, after, daemons,
        f"{sent / 1000:.1f} kB", f"{received / 1000:.1f} kB",
    ]  # fmt: skip


@contextmanager
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


def play(stage: Stage, root: Path) -> str:
    """The three acts; returns the sentence to end with."""
    founder = start_node(NAMES[0], root, [])
    stage.nodes.append(founder)
    stage.until("Act 1: alice founds a swarm …", lambda: founder.status is not None and bool(founder.status.invite))
    assert founder.status is not None
    invite = shlex.split(founder.status.invite)[3:]  # what follows `python -m p2pnode`
    stage.nodes += [start_node(name, root, invite) for name in NAMES[1:]]
    everyone = lambda: all(node.peers == len(NAMES) - 1 for node in stage.nodes)  # noqa: E731
    stage.until("Act 1: three friends paste her invite …", everyone)

    victim = stage.nodes[1]
    generation, killed_at = victim.status.daemon_starts if victim.status else 0, time.monotonic()
    victim.daemon().kill()
    back = lambda: everyone() and victim.status is not None and victim.status.daemon_starts > generation  # noqa: E731
    stage.until(f"Act 2: {victim.name}'s network daemon was killed; it is replaced …", back)
    recovered = time.monotonic() - killed_at

    for node in stage.nodes[1:]:
        node.process.terminate()
    gone = lambda: founder.status is not None and not founder.status.peers  # noqa: E731
    stage.until("Act 3: bob, carol and dave leave; alice sees them go …", gone, only=founder)
    founder.process.terminate()
    codes = [node.process.wait(15) for node in stage.nodes]
    if any(codes):
        raise Failed(f"the nodes ended with exit codes {codes}")
    slowest = max(node.saw_all_after or 0.0 for node in stage.nodes[1:])
    return (
        f"Four nodes, four daemons: every friend saw all others within {slowest:.1f} s of its start; "
        f"a killed daemon was replaced and everyone seen again after {recovered:.1f} s; all left cleanly."
    )


def main() -> int:
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="p2pnode-demo-") as directory, Stage(console) as stage:
        root = Path(directory)
        try:
            with ended_afterwards(stage):
                stage.line = play(stage, root)
        except Failed as failure:
            stage.line = f"The demo failed: {failure}"
            for log in sorted(root.glob("*.log")):
                console.print(f"--- last lines of {log.name}", *log.read_text().splitlines()[-8:], sep="\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
