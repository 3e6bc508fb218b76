"""The peers of benchmarks.swarm, of both kinds: how they are started, watched and ended."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.swarm_net import Links
from p2pnode.node.control import ask
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.status import JobStatus, NodeStatus

if TYPE_CHECKING:
    from benchmarks.swarm import Case

PARTS = 4
PORT = 4000
PAUSE = 0.1


@dataclass(frozen=True)
class Seen:
    """How a peer does: on the test data, and how long it was in training steps so far."""

    loss: float
    accuracy: float | None
    steps: int
    busy: float
    epochs: int = 0  # averagings, as hivemind counts them


class Peer(Protocol):
    def look(self) -> Seen | None:
        """None while it does not learn, or has not looked at the test data."""
        ...

    def kill(self) -> None: ...


class Started:
    """A process in a place, in a group of its own."""

    def __init__(self, net: Links, place: int, case: Case, root: Path, entrance: tuple[str, ...]) -> None:
        self.net, self.place, self.case, self.root, self.joins = net, place, case, root, entrance
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self) -> None:
        command = self.net.inside(self.place, *self.command())
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with (self.root / f"{type(self).__name__}{self.place}.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)

    def kill(self) -> None:
        """Without warning, with all it started."""
        if self.process is not None:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)

    def alive(self) -> None:
        if self.process is None or self.process.poll() is not None:
            log = (self.root / f"{type(self).__name__}{self.place}.log").read_text(errors="replace")
            raise AssertionError(f"a peer ended by itself: {log[-1500:]}")


class NodePeer(Started):
    """A node as a user starts it."""

    _steps, _busy = 0, 0.0

    @property
    def _data_dir(self) -> Path:
        return self.root / f"node{self.place}"

    def command(self) -> list[str]:
        case, listen = self.case, f"/ip4/{self.net.address(self.place)}/tcp/{PORT}"
        words = ["--name", f"peer{self.place}", "--data-dir", str(self._data_dir), "--log-format", "json"]
        words += ["--listen", listen, "--split", case.split, "--part", f"{self.place % PARTS + 1}/{PARTS}"]
        words += ["--data", case.source] if case.source else []
        return [sys.executable, "-m", "p2pnode", *words, *(self.joins or self._founding())]

    def _founding(self) -> list[str]:
        words = ["--task", self.case.task, "--round-seconds", str(self.case.round_seconds)]
        words += [word for key, value in self.case.options.items() for word in ("--task-option", f"{key}={value}")]
        return words + [word for key, value in self.case.settings.items() for word in ("--set", f"{key}={value}")]

    def _status(self) -> NodeStatus | None:
        try:
            return ask(self._data_dir, ControlRequest("status")).status
        except LocalProblem:
            self.alive()
            return None

    def _learning(self) -> JobStatus | None:
        status = self._status()
        return None if status is None else next(iter(status.jobs.values()), None)

    def entrance(self, deadline: float) -> tuple[str, ...]:
        """What others paste after `python -m p2pnode`."""
        while time.monotonic() < deadline:
            status = self._status()
            if status is not None and status.invite:
                return tuple(shlex.split(status.invite)[3:])
            time.sleep(PAUSE)
        raise AssertionError("the first node has no invite")

    def look(self) -> Seen | None:
        status = self._learning()
        if status is None or status.training.test_loss is None:
            return None
        if status.state.steps_per_second:
            self._busy += max(0, status.steps - self._steps) / status.state.steps_per_second
        self._steps = status.steps
        return Seen(status.training.test_loss, status.state.training.accuracy, status.steps, self._busy)

    def rounds(self) -> int:
        status = self._learning()
        return 0 if status is None else status.state.training.round or 0

    def wait_for_rounds(self, rounds: int, begun: float, limit: float) -> float:
        """Seconds from `begun` until the node has done `rounds` rounds; NaN when it does not."""
        while time.monotonic() - begun < limit:
            if self.rounds() >= rounds:
                return time.monotonic() - begun
            time.sleep(PAUSE)
        return float("nan")


class HivemindPeer(Started):
    """A process with hivemind.Optimizer."""

    @property
    def _file(self) -> Path:
        return self.root / f"hivemind{self.place}.json"

    def command(self) -> list[str]:
        case = self.case
        words: dict[str, Any] = {
            "task": case.task,
            "options": case.options,
            "source": case.source or None,
            "split": case.split,
            "part": self.place,
            "parts": PARTS,
            "initial_peers": list(self.joins),
            "listen": f"/ip4/{self.net.address(self.place)}/tcp/{PORT}",
            "target_batch_size": case.target_batch_size,
            "evaluate_every": 2.5 * case.round_seconds,  # as often as a node does
            "status": str(self._file),
        }
        return [sys.executable, "-m", "benchmarks.swarm_hivemind", json.dumps(words)]

    def entrance(self, deadline: float) -> tuple[str, ...]:
        file = self._file.with_suffix(".address")
        while time.monotonic() < deadline:
            if file.exists() and file.read_text():
                return (file.read_text(),)
            self.alive()
            time.sleep(PAUSE)
        raise AssertionError("the first hivemind peer has no address")

    def look(self) -> Seen | None:
        if not self._file.exists():
            self.alive()
            return None
        state = json.loads(self._file.read_text())
        return Seen(state["loss"], state["accuracy"], state["steps"], state["busy"], state["epoch"])
