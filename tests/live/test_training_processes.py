"""Learning with real processes: joining in the middle, killed at any instant, founders gone, keys asked for."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from p2pnode.config.options import TrainOptions
from p2pnode.jobs.contract import job_folder
from p2pnode.jobs.model.checkpoints import progress_folder
from p2pnode.jobs.train.binding import open_model_host
from p2pnode.jobs.train.plan import TrainPlan, first_plan
from p2pnode.jobs.train.prepare import fresh_policy
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.node.joining import last_run
from p2pnode.storage.checkpoints import CheckpointStore
from p2pnode.storage.files import DiskStorage
from p2pnode.wire.ids import Identity
from tests.live.cli_nodes import NodeProcess, pasted, wait_for

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("learning")]
Opener = Callable[..., NodeProcess]
LIMIT = 90.0
FAST = ("--round-seconds", "0.5", "--full-speed")


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Opener]:
    opened: list[NodeProcess] = []

    def launch(name: str, *arguments: str, argv: list[str] | None = None) -> NodeProcess:
        opened.append(NodeProcess(tmp_path, name, *arguments, argv=argv, learns=True))
        return opened[-1]

    yield launch
    for one in opened:
        one.stop()


def learning(process: NodeProcess) -> dict[str, Any]:
    """What a node says of its learning; empty before it learns."""
    assert process.process.poll() is None, f"ended early: {process.out}{process.err}"
    job = process.status().get("jobs", {}).get("main", {})
    return {**(job.get("train") or {}), **job.get("state", {}).get("train", {})}


def rounds(process: NodeProcess, more_than: int = 0) -> int:
    """Wait for a node to have done more than `more_than` rounds; returns how many it has done."""
    return int(wait_for("rounds", lambda: (now := rounds_done(process)) > more_than and now, LIMIT))


def rounds_done(process: NodeProcess) -> int:
    return int(learning(process).get("round", 0))


def contributes(giver: NodeProcess, taker: NodeProcess) -> None:
    """Wait until a node has taken in entries, and the other has given some since."""
    before = learning(taker).get("entries", 0)
    rounds(giver, rounds_done(giver) + 1)
    wait_for("entries of others", lambda: learning(taker).get("entries", 0) > before, LIMIT)


def leaves(process: NodeProcess) -> None:
    """Ask a node that trains to leave: in time, or its process would end itself with another code."""
    process.signalled(signal.SIGTERM)
    assert process.process.returncode == 0, process.err


def friend_of(process: Opener, founder: NodeProcess, name: str, *arguments: str) -> NodeProcess:
    return process(name, *pasted(founder.invite())[3:], *arguments)


def plan_of(data_dir: Path) -> tuple[TrainPlan, str]:
    run = last_run(DiskStorage(data_dir))
    assert run is not None
    plan = first_plan(run.manifest)
    assert plan is not None
    return plan, run.access.run


def left_on_disk(data_dir: Path) -> DeltaSetPolicy:
    """The delta set a node that ended has saved."""
    plan, run = plan_of(data_dir)
    model_host = open_model_host(TrainOptions(plan.task, plan.options, device="cpu"), plan.seed)
    policy = fresh_policy(plan, model_host, Identity.from_key_file((data_dir / "identity.key").read_bytes()))
    saved = CheckpointStore(DiskStorage(data_dir), progress_folder(job_folder(run, "main"))).load()
    assert saved is not None and isinstance(policy, DeltaSetPolicy)
    policy.restore(*saved)
    return policy


def test_a_private_run_is_joined_in_the_middle_and_goes_on_without_its_founder(process: Opener) -> None:
    ann = process("ann", "--private", *FAST)
    rounds(ann, 5)
    ben = friend_of(process, ann, "ben", "--full-speed")
    ben.says("learning digits from where the run stands")
    contributes(ben, ann)
    contributes(ann, ben)
    invite = pasted(ben.invite())[3:]
    leaves(ann)
    cat = process("cat", *invite, "--full-speed")
    cat.says("learning digits from where the run stands")
    contributes(cat, ben)
    good = wait_for("an evaluation", lambda: learning(cat).get("accuracy"), LIMIT)
    assert good > 0.5  # of ten classes: these are not the run's first weights


def test_what_is_killed_at_any_instant_goes_on_under_the_same_log_and_a_lost_state_begins_a_new_one(
    process: Opener,
) -> None:
    rng = random.Random(7)
    ann = process("ann", "--round-seconds", "1", "--full-speed")  # ben gives up its log if three rounds reach nobody
    ben = friend_of(process, ann, "ben", "--full-speed")
    rounds(ben, 2)
    identity, command = ben.status()["id"], [*pasted(ann.invite())[3:], "--full-speed"]
    for _ in range(2):
        time.sleep(rng.uniform(0.0, 2.0))
        before = rounds_done(ben)
        ben.signalled(signal.SIGKILL)
        ben = process("ben", *command)
        ben.says("going on with digits")
        assert rounds(ben, before) > before
        assert ben.status()["id"] == identity
    contributes(ben, ann)
    ben.signalled(signal.SIGKILL)
    held = left_on_disk(ben.data_dir).set
    assert held.log.exclusions == {}
    assert {chain.incarnation for chain in held.heads} == {0}
    assert {chain.peer for chain in held.heads} == {ann.status()["id"], identity}

    for state in ben.data_dir.glob("runs/*/main/progress/*"):
        if state.name != "incarnation":
            state.write_bytes(b"rubbish")
    ben = process("ben", *command)
    ben.says("damaged; nothing else was saved")
    contributes(ben, ann)
    for one in (ben, ann):
        leaves(one)
    held = left_on_disk(ann.data_dir).set
    assert held.log.exclusions == {}
    assert sorted(chain.incarnation for chain in held.heads if chain.peer == identity) == [0, 1]


def test_a_goal_that_is_reached_ends_the_node_and_a_damaged_state_falls_back(process: Opener) -> None:
    ann = process("ann", *FAST, "--until", "rounds:5")
    assert ann.ended(LIMIT) == 0
    assert "5 rounds are done; leaving" in ann.out
    assert ann.left_behind() == []
    done = left_on_disk(ann.data_dir).author.rounds
    latest = max(ann.data_dir.glob("runs/*/main/progress/state.*"), key=lambda path: path.stat().st_mtime_ns)
    latest.write_bytes(latest.read_bytes()[:-40] + b"\1" * 40)
    ann = process("ann", "--full-speed")
    ann.says("saved progress was damaged; going on from the other of the last two states")
    assert rounds(ann, done) > done


def test_what_contradicts_the_run_gets_one_line(process: Opener, tmp_path: Path) -> None:
    ann = process("ann", *FAST, "--set", "density=0.01")
    invite = pasted(ann.invite())[3:]
    other = tmp_path / "digits_of_mine.py"
    other.write_text(
        "from p2pnode.tasks.digits import Digits as Original\n"
        "class Digits(Original):\n    name = 'digits'\n    version = '2'\n"
    )
    cases = {  # flags that contradict it: tests/jobs/train/test_binding.py
        "version 1 with 9,610 parameters": ["--task", str(other)],
        "is 'fashion-mnist', and this run learns 'digits'": ["--task", "fashion-mnist"],
        "--set density=0.5 contradicts the run, which has 0.01": ["--set", "density=0.5"],
    }
    started = [process(f"ben{number}", *invite, *flags) for number, flags in enumerate(cases.values())]
    for ben, words in zip(started, cases, strict=True):
        assert ben.ended(LIMIT) == 2, ben.out + ben.err
        assert ben.err.count("\n") == 1
        assert words in ben.err


def test_export_and_revert(process: Opener, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    ann = process("ann", *FAST)
    ben = friend_of(process, ann, "ben", "--name", "ben")
    contributes(ben, ann)
    said = ann.ask("revert", "ben", seconds=60)
    assert "is left out" in said.stdout and "before" in said.stdout, said.stderr
    assert "no author of entries is called" in ann.ask("revert", "nobody").stderr
    files = [tmp_path / f"{name}.safetensors" for name in ("running", "shared", "saved")]
    assert ann.ask("export", str(files[0]), seconds=60).returncode == 0
    assert ann.ask("export", str(files[1]), "--shared", seconds=60).returncode == 0
    leaves(ann)
    assert "as the node had saved it" in ann.ask("export", str(files[2]), seconds=60).stdout
    for file in files:
        shapes = {name: tensor.shape for name, tensor in load_file(file).items()}
        assert shapes == {"1.weight": (128, 64), "1.bias": (128,), "3.weight": (10, 128), "3.bias": (10,)}
