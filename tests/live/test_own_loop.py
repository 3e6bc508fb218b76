"""Scripts with training loops of their own, as real processes: they found, join, crash, resume and leave."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.live.cli_nodes import PATIENCE, wait_for

pytestmark = pytest.mark.live
SCRIPT = Path(__file__).parent / "loop_script.py"
ROOT = Path(__file__).parent.parent.parent
CODE = re.compile(r"^([1-9A-HJ-NP-Za-km-z]{60,})$", re.M)


class Script:
    """One process with a loop."""

    def __init__(self, root: Path, name: str, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.data_dir = root / name
        self.stop = root / f"{name}.stop"
        self._out = root / f"{name}.out"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        with self._out.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), "--data-dir", str(self.data_dir), "--stop", str(self.stop), *arguments],
                stdout=out,
                stderr=out,
                env=environment,
                cwd=root,
            )

    @property
    def out(self) -> str:
        return self._out.read_text(errors="replace")

    def code(self) -> str:
        """The invite, as it stands on a line of its own."""
        return wait_for("an invite", lambda: (found := CODE.search(self.out)) and found[1], 60)

    def ended(self) -> int:
        """Wait for the process to end; returns its exit code."""
        return self.process.wait(60 * PATIENCE)

    def accuracy(self) -> float:
        return max([0.0, *map(float, re.findall(r"^accuracy (\S+) steps \d+ joined", self.out, re.M)[-3:])])

    def steps(self) -> int:
        return max([0, *map(int, re.findall(r"steps (\d+)", self.out))])

    def received(self) -> int:
        """Samples of the other loop that this one can train on."""
        return max([0, *map(int, re.findall(r"received (\d+)", self.out))])

    def daemons(self) -> list[psutil.Process]:
        return [
            one for one in psutil.process_iter(["cmdline"]) if str(self.data_dir) in " ".join(one.info["cmdline"] or ())
        ]

    def no_daemon(self) -> None:
        wait_for("no daemon to be left", lambda: not self.daemons(), 10)

    def run(self, *command: str) -> str:
        """A command of another terminal."""
        done = subprocess.run(
            [sys.executable, "-m", "p2pnode", *command, "--data-dir", str(self.data_dir)],
            capture_output=True,
            text=True,
            timeout=60 * PATIENCE,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        return done.stdout + done.stderr

    def end(self) -> None:
        """Let it leave; a script that does not is killed, and the fixture then finds its daemon."""
        self.stop.touch()
        try:
            self.process.wait(60 * PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


Start = Callable[..., Script]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Script] = []

    def begin(name: str, *arguments: str, env: dict[str, str] | None = None) -> Script:
        started.append(Script(tmp_path, name, *arguments, env=env))
        return started[-1]

    yield begin
    for one in started:
        one.end()
    for one in started:
        one.no_daemon()


def test_two_scripts_learn_together_crash_and_go_on(start: Start, tmp_path: Path) -> None:
    """The invite that one prints is pasted into the other; a killed script goes on; both leave."""
    founder = start("founder", "--kept", "0,1", "--private", "--workers", "2", "--share")
    code = founder.code()
    joiner = start("joiner", "--kept", "1,2", "--share", env={"P2PNODE_INVITE": code})
    wait_for("both to learn all classes", lambda: min(founder.accuracy(), joiner.accuracy()) > 0.75, 60)
    wait_for("shards of one to reach the other", lambda: founder.received() and joiner.received(), 60)
    assert any(row["received"] for row in json.loads(joiner.run("shards", "--json"))["shards"])
    status = json.loads(joiner.run("status", "--json"))
    assert status["private"] and status["jobs"]["main"]["kind"] == "loop"
    assert "founder" in founder.run("peers") or status["peers"]
    assert "paused" in joiner.run("pause")
    assert "working" in joiner.run("resume")
    file = tmp_path / "model.safetensors"
    assert "wrote the whole model, 4 tensors" in joiner.run("export", str(file))
    peer, steps = status["id"], joiner.steps()

    joiner.process.send_signal(signal.SIGKILL)
    joiner.process.wait()
    again = start("joiner", "--kept", "1,2", "--share")  # without the invite: the run is saved
    wait_for("the script to go on", lambda: "resumed run" in again.out and "going on with" in again.out, 60)
    wait_for("its steps to go on", lambda: again.out.rpartition("going on with")[2].count(" joined") > 1, 60)
    assert json.loads(again.run("status", "--json"))["id"] == peer
    assert again.steps() >= steps

    again.stop.touch()
    founder.stop.touch()
    assert (again.ended(), founder.ended()) == (0, 0)
    assert "left; accuracy" in again.out
    wait_for("no daemon to be left", lambda: not again.daemons() and not founder.daemons(), 5)


def test_wrong_models_users_errors_and_interrupts(start: Start) -> None:
    """One clear exception of ours with a remedy; the user's own exceptions pass through; nothing is left running."""
    founder = start("founder", "--plain")
    code = founder.code()
    other = start("other", "--hidden", "17", "--invite", code)
    failing = start("failing", "--fail", "--invite", code)
    assert other.ended() == 1
    assert "UsageError: this model is not the run's" in other.out
    assert "parameter 0.weight is float32 [17, 2] here and float32 [16, 2] in the run" in other.out
    assert failing.ended() == 1
    assert failing.out.rstrip().endswith('KeyError: "the user\'s own"') or 'KeyError: "the user\'s own"' in failing.out

    founder.process.send_signal(signal.SIGINT)  # without a with block: the end of the process says goodbye
    founder.ended()
    assert "KeyboardInterrupt" in founder.out
    for script in (founder, other, failing):
        script.no_daemon()


@pytest.mark.slow  # several times the import of torch
def test_the_ranks_of_one_torchrun_are_one_member_with_bit_equal_weights(start: Start, tmp_path: Path) -> None:
    founder = start("founder", "--kept", "0,1")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    script = Path(__file__).parent / "rank_script.py"
    done = subprocess.run(
        [*torchrun, "--standalone", str(script), str(tmp_path / "ranks"), founder.code(), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results = [(tmp_path / f"rank{rank}").read_text().split() for rank in (0, 1)]
    assert [float(apart) for apart, *_ in results] == [0.0, 0.0]
    assert [has_node for *_, has_node in results] == ["True", "False"]  # rank 0 speaks
