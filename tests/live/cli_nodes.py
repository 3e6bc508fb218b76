"""Real `python -m p2pnode` processes for the live tests of the command line. They end only what they started."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil

from p2pnode.node import control
from p2pnode.wire.control import ControlRequest
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.invite import decode_invite

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
PATIENCE = 5.0  # limits are for an idle machine; a busy one may take this many times as long
T = TypeVar("T")


def wait_for(what: str, look: Callable[[], T | None], seconds: float) -> T:
    """What `look` returns once it is true; an assertion after the limit."""
    deadline = time.monotonic() + PATIENCE * seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {PATIENCE * seconds} s: {what}")


class NodeProcess:
    """One process, its output, and its data directory. Its temporary files go to a directory of its own."""

    def __init__(
        self,
        root: Path,
        name: str,
        *arguments: str,
        argv: list[str] | None = None,
        terminal: int | None = None,
        learns: bool = False,
    ) -> None:
        """Start it. Most tests need no learning, and without it nodes start faster."""
        self._learns = learns
        self.data_dir = root / name
        self.temporary = Path("/tmp", f"p2pnode-test-{os.getpid()}-{name}-{time.monotonic_ns() % 10**6}")
        self.temporary.mkdir(mode=0o700)
        self._out = (root / f"{name}.out").open("ab+")
        self._err = (root / f"{name}.err").open("ab+")
        self._begun = (self._out.seek(0, 2), self._err.seek(0, 2))
        self.process = psutil.Popen(
            argv or [sys.executable, "-m", "p2pnode", *arguments],
            env=self.environment(),
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=self._out if terminal is None else terminal,
            stderr=self._err,
            start_new_session=True,
            preexec_fn=None if terminal is None else own_terminal,
        )

    def environment(self) -> dict[str, str]:
        foreign = ("COLUMNS", "LINES")  # of the terminal in which the tests run
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("P2PNODE_", *foreign))}
        path = f"{Path(sys.executable).parent}:{clean.get('PATH', '')}"
        mine = {"P2PNODE_DATA_DIR": str(self.data_dir), "P2PNODE_LISTEN": LOOPBACK, "TMPDIR": str(self.temporary)}
        learning = {} if self._learns else {"P2PNODE_MEET_ONLY": "1"}
        return {**clean, **mine, **learning, "PATH": path, "OMP_NUM_THREADS": "1"}

    @property
    def out(self) -> str:
        return Path(self._out.name).read_bytes()[self._begun[0] :].decode()

    @property
    def err(self) -> str:
        return Path(self._err.name).read_bytes()[self._begun[1] :].decode()

    def says(self, pattern: str, seconds: float = 40.0) -> str:
        """Wait for output that matches; returns the match."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.out, re.MULTILINE)
            assert found or self.process.poll() is None, f"ended early: {self.out}{self.err}"
            return found

        return wait_for(f"{pattern!r} in the output of {self.data_dir.name}", look, seconds).group(0)

    def invite(self) -> str:
        """The command that others paste. That of a private run is in no log: it is asked for."""
        said = self.says(r"^python -m p2pnode join \w+$|this run is private, and its invite")
        return said if said.startswith("python") else str(self.status()["invite"])

    def address(self) -> str:
        """Where others can dial this node."""
        return decode_invite(self.invite()).addresses[0].text

    def ask(self, *arguments: str, seconds: float = 30.0) -> subprocess.CompletedProcess[str]:
        """A short command about this node."""
        argv = [sys.executable, "-m", "p2pnode", *arguments]
        return subprocess.run(
            argv, env=self.environment(), capture_output=True, text=True, timeout=PATIENCE * seconds, check=False
        )

    def status(self) -> dict[str, Any]:
        """What `status --json` prints, without starting a process for it; nothing while no node is there."""
        try:
            answer = control.ask(self.data_dir, ControlRequest("status"), PATIENCE * control.TIME_LIMIT)
        except LocalProblem:
            return {}
        return dict(msgspec.to_builtins(answer.status))

    def peers(self) -> dict[str, dict[str, Any]]:
        """Peers present, by name."""
        return {row["name"]: row for row in self.status().get("peers", ()) if row["present"]}

    def daemons(self) -> list[psutil.Process]:
        return [child for child in self.process.children(recursive=True) if child.name() == "p2pd"]

    def signalled(self, number: signal.Signals, seconds: float = 5.0) -> None:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        self.process.wait(PATIENCE * seconds)

    def ended(self, seconds: float = 40.0) -> int:
        """Wait for the process to end by itself; returns its exit code."""
        return int(self.process.wait(PATIENCE * seconds))

    def left_behind(self) -> list[str]:
        """Sockets, temporary files and half-written files that a clean end does not leave."""
        kept = {"identity.key", "lock", "port", "run.json", "runs", "book.json", "config.toml", "paused", "name"}
        here = [path.name for path in self.data_dir.iterdir()] if self.data_dir.exists() else []
        return [name for name in here if name not in kept] + [str(path) for path in self.temporary.rglob("*")]

    def stop(self) -> None:
        """Make sure that nothing of it is left, however the test went."""
        daemons = self.daemons() if self.process.is_running() else []
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        for daemon in daemons:
            try:
                daemon.kill()
            except psutil.NoSuchProcess:
                continue
        for file in (self._out, self._err):
            file.close()
        subprocess.run(["rm", "-rf", str(self.temporary)], check=False)


def own_terminal() -> None:
    """Make stdin the terminal from which Ctrl-C comes."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def pasted(invite: str) -> list[str]:
    """The words of an invite, as a shell would read them."""
    return shlex.split(invite)
