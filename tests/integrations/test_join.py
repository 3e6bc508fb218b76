"""`p2pnode.join` in one process: next to a running event loop, in `python -i`, and what it says of wrong arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import p2pnode
from p2pnode.integrations.join import LEAVE_LIMIT, SHARE_LIMIT, HookedLoop, JoinedRun, LoopExtras, in_python
from p2pnode.integrations.ranks import Ranks
from p2pnode.integrations.schedule import LineageLR
from p2pnode.wire.addresses import parse_address
from p2pnode.wire.errors import LocalProblem, UsageError
from p2pnode.wire.ids import Identity
from p2pnode.wire.invite import Invite
from p2pnode.wire.run import RunAccess

HERE: dict[str, Any] = {"listen": "/ip4/127.0.0.1/tcp/0", "no_lan": True, "quiet": True}
GONE = Invite(
    RunAccess.parse("abcdefghijklmnopqrstuvwxya"),
    (parse_address(f"/ip4/127.0.0.1/tcp/9/p2p/{Identity(b'1' * 32).peer_id}"),),
)


def loop() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), 0.01)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(2, 3)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.live
async def test_it_works_next_to_a_running_event_loop_and_a_stale_invite_is_an_error_of_ours(tmp_path: Path) -> None:
    """As in a notebook, whose cells run inside a loop."""
    model, optimizer = loop()
    swarm = p2pnode.join(model, optimizer, data_dir=tmp_path / "a", dashboard="127.0.0.1:0", **HERE)
    assert swarm.wait(120)
    for _ in range(20):
        step(model, optimizer)
    status = swarm.status()
    assert status is not None and status.jobs["main"].kind == "loop"
    assert swarm.steps == 20 and swarm.state == "joined"
    with pytest.raises(LocalProblem, match=r"uses the data directory .* data_dir="):
        p2pnode.join(*loop(), data_dir=tmp_path / "a", **HERE)
    with pytest.raises(UsageError, match="takes part in a run already"):
        p2pnode.join(model, optimizer, data_dir=tmp_path / "b", **HERE)
    swarm.leave()
    swarm.leave()
    assert swarm.state == "left"

    other = nn.Linear(4, 1)
    with pytest.raises(UsageError, match=r"the run saved in .* cannot go on: .*parameter weight is float32 \[1, 4\]"):
        p2pnode.join(other, torch.optim.SGD(other.parameters()), data_dir=tmp_path / "a", **HERE)

    stale = p2pnode.join(model, optimizer, str(GONE), data_dir=tmp_path / "c", join_timeout=2, **HERE)
    with pytest.raises((LocalProblem, UsageError), match=r"could not join within 2 s: no member of run .*join_timeout"):
        stale.wait(120)
    step(model, optimizer)  # the hooks are gone: the loop may go on alone
    stale.leave()


@pytest.mark.live
def test_it_works_in_an_interactive_python_and_leaves_at_its_end(tmp_path: Path) -> None:
    script = tmp_path / "session.py"
    script.write_text(
        "import torch, p2pnode\n"
        "model = torch.nn.Linear(3, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        f"swarm = p2pnode.join(model, optimizer, data_dir={str(tmp_path / 'node')!r}, **{HERE!r})\n"
        "print('waited', swarm.wait(120))\n"
    )
    done = subprocess.run(
        [sys.executable, "-i", str(script)],
        input="model(torch.ones(1, 3)).sum().backward()\noptimizer.step()\nprint('steps', swarm.steps)\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(p2pnode.__file__).parent.parent)},
    )
    assert "waited True" in done.stdout and "steps 1" in done.stdout
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "node" / "control").exists()


@pytest.mark.live
@pytest.mark.slow
def test_it_works_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a real kernel, whose event loop runs, over several cells and without a `with` block."""
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(Path(p2pnode.__file__).parent.parent))
    cells = [
        "import torch, p2pnode\nmodel = torch.nn.Linear(3, 1)\noptimizer = torch.optim.SGD(model.parameters(), 0.1)",
        f"swarm = p2pnode.join(model, optimizer, data_dir={str(tmp_path / 'node')!r}, **{HERE!r})\nswarm.wait(300)",
        "for _ in range(5):\n    model(torch.ones(2, 3)).sum().backward()\n    optimizer.step()",
        "print('steps', swarm.steps, swarm.state)\nswarm.leave()\nprint(swarm.state)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    NotebookClient(notebook, timeout=500, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = "".join(output.get("text", "") for cell in notebook.cells for output in cell.outputs)
    assert "steps 5 joined" in shown and shown.rstrip().endswith("left")


class StuckNode:
    """A node that does not end. Its waits are noted, not made."""

    def __init__(self) -> None:
        import threading

        self.ended, self.problem, self.invite = threading.Event(), None, ""
        self.waited = 0.0
        self.swept = False

    def status(self) -> None:
        return None

    def leave(self) -> None:
        pass

    def wait(self, seconds: float) -> bool:
        self.waited += seconds
        return False

    def sweep(self) -> None:
        self.swept = True


def test_leaving_takes_less_than_five_seconds_even_if_the_node_is_stuck() -> None:
    model, optimizer = loop()
    hooked, stuck = HookedLoop(model, optimizer, LoopExtras(), Ranks()), StuckNode()
    hooked.source.arrived.set()
    swarm = JoinedRun(hooked, stuck, Ranks())  # type: ignore[arg-type]
    step(model, optimizer)
    swarm.leave()
    assert stuck.swept and SHARE_LIMIT <= stuck.waited <= SHARE_LIMIT + LEAVE_LIMIT
    assert LEAVE_LIMIT < 5 and not optimizer._optimizer_step_post_hooks


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"invite": "nonsense"}, "invite=: the invite 'nonsense'"),
        ({"max_upload": "much"}, "max_upload=: "),
        ({"found": True, "invite": str(GONE)}, "contradicts"),
        ({"buffers": "some"}, "neither 'own' nor 'mean'"),
        ({"version": ""}, "version= must have 1 to 120 characters"),
    ],
)
def test_wrong_arguments_are_reported_at_once_and_nothing_is_hooked(tmp_path: Path, given: Any, said: str) -> None:
    model, optimizer = loop()
    with pytest.raises(UsageError) as error:
        p2pnode.join(model, optimizer, data_dir=tmp_path / "node", **{**HERE, **given})
    assert said in str(error.value)
    assert not optimizer._optimizer_step_post_hooks
    step(model, optimizer)


def test_errors_speak_of_arguments() -> None:
    assert in_python("stop it, or give this one its own --data-dir") == "stop it, or give this one its own data_dir="
    assert in_python("add --found to found a private one") == "add found=True to found a private one"
    assert in_python("--set density=2") == "settings= density=2"
    assert in_python("(without --join-timeout it keeps trying)") == "(join_timeout= gives it more time)"


def test_a_schedule_follows_the_lineage() -> None:
    _, optimizer = loop()
    steps = 0
    schedule = LineageLR(optimizer, lambda step: 1.0 / (1 + step), lambda: steps)
    for steps in (1, 5000, 5001):
        optimizer.step()
        schedule.step()
        assert optimizer.param_groups[0]["lr"] == schedule.get_last_lr()[0] == pytest.approx(0.01 / (1 + steps))
    assert schedule.last_epoch == 5001
