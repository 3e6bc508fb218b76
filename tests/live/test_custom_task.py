"""A run with a task of the founder's own, with three real processes: announced, shown, accepted, remembered."""

from __future__ import annotations

import os
import pty
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from p2pnode.wire.ids import sha256
from tests.live.cli_nodes import NodeProcess, pasted, wait_for

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("learning")]
Opener = Callable[..., NodeProcess]
OWN_TASK = Path(__file__).parent.parent.parent / "examples" / "own_task.py"
FAST = ("--round-seconds", "0.5")
LIMIT = 90.0


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Opener]:
    opened: list[NodeProcess] = []

    def launch(name: str, *arguments: str, terminal: int | None = None) -> NodeProcess:
        opened.append(NodeProcess(tmp_path, name, *arguments, terminal=terminal, learns=True))
        return opened[-1]

    yield launch
    for one in opened:
        one.stop()


def test_a_task_file_is_offered_asked_about_and_remembered(process: Opener, tmp_path: Path) -> None:
    file = tmp_path / "spirals.py"
    file.write_bytes(OWN_TASK.read_bytes())
    hash = sha256(file.read_bytes()).hex()
    ann = process("ann", "--task", str(file), *FAST)
    ann.says(rf"those who join are shown spirals.py \(\d+ bytes, sha256 {hash}\) and asked before it runs", LIMIT)
    invite = pasted(ann.invite())[3:]

    deaf = process("deaf", *invite)  # nobody can answer
    assert deaf.ended(LIMIT) == 2
    assert deaf.err.count("\n") == 1
    assert f"add --accept-task {hash}" in deaf.err
    (copy,) = deaf.data_dir.glob("runs/*/main/spirals.py")
    assert str(copy) in deaf.err
    assert copy.read_bytes() == file.read_bytes()
    assert "joined run" not in deaf.out
    assert not (deaf.data_dir / "run.json").exists()

    screen, terminal = pty.openpty()
    bob = process("bob", *invite, "--log-format", "plain", terminal=terminal)
    os.close(terminal)
    shown = ""

    def read_on() -> str:
        nonlocal shown
        if select.select([screen], [], [], 0.5)[0]:
            try:
                shown += os.read(screen, 1 << 16).decode(errors="replace")
            except OSError:  # the other side has closed it
                raise AssertionError(f"bob ended with {bob.ended(10)}: {shown}{bob.err}") from None
        return shown

    wait_for("the question", lambda: "[y/N]" in read_on(), LIMIT)
    assert hash in shown
    assert "joined run" not in shown
    os.write(screen, b"y\n")
    wait_for("bob has joined and trains", lambda: "joined run" in read_on() and "round 1" in shown, LIMIT)

    eve = process("eve", *invite, "--accept-task", hash)
    eve.says("joined run", LIMIT)
    eve.says("round 1", LIMIT)

    for founder_gone in (ann, bob):
        founder_gone.signalled(signal.SIGKILL)
    os.close(screen)
    file.unlink()
    again = process("ann", *FAST)  # no --task, and the file is gone
    again.says("the run's own copy is used", LIMIT)
    again.says("going on with spirals", LIMIT)
    late = process("late", *pasted(eve.invite())[3:], "--accept-task", hash)  # any member gives the file
    late.says("joined run", LIMIT)
    eve.signalled(signal.SIGTERM)
    weights = tmp_path / "weights.safetensors"
    exported = eve.ask("export", str(weights))
    assert exported.returncode == 0, exported.stderr
    assert weights.stat().st_size > 0


def test_both_learn_that_a_task_cannot_be_offered(process: Opener, tmp_path: Path) -> None:
    (tmp_path / "spirals.py").write_text(OWN_TASK.read_text() + "\nimport helper  # noqa\n")
    (tmp_path / "helper.py").touch()
    ann = process("ann", "--task", str(tmp_path / "spirals.py"), *FAST)
    ann.says("those who join need spirals.py, so send it to them, for --task: it imports helper", LIMIT)
    bob = process("bob", *pasted(ann.invite())[3:])
    assert bob.ended(LIMIT) == 2
    assert "'spirals', which is not installed here; ask the founder for its file and give it with --task" in bob.err
    assert "joined run" not in bob.out
    cas = process("cas", *pasted(ann.invite())[3:], "--task", str(tmp_path / "spirals.py"))
    cas.says("joined run", LIMIT)
