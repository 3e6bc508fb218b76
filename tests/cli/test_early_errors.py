"""What is wrong with the options is found before the network starts: one line, an exit code, nothing started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from p2pnode.config.options import Options
from p2pnode.jobs.train.plan import TrainPlan
from p2pnode.node.joining import found_run, save_run
from p2pnode.storage.files import DiskStorage
from p2pnode.wire.ids import Identity
from p2pnode.wire.run import JobEntry
from tests.cli.forked import SCRIPT, STARTED, started
from tests.jobs.train.setups import train_entry

NOBODY = Identity(b"\x09" * 32).peer_id
JOIN = ("--bootstrap", f"/ip4/127.0.0.1/tcp/9/p2p/{NOBODY}", "--run", "abcdefghijklmnopqrstuvwxyz")
OWN = Path(__file__).parents[2] / "examples" / "own_task.py"


def complaint(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    """The one line; nothing was started and nothing is said to have been left."""
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr.startswith("p2pnode: ") and done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", "digist"], "did you mean 'digits'?"),
        (["--task", "nowhere.py"], "no file"),
        (["--policy", "detlaset"], "did you mean 'deltaset'?"),
        (["--set", "densty=0.1"], "did you mean 'density'?"),
        (["--set", "expore=0.1"], "did you mean 'explore'?"),
        (["--set", "importanse=1"], "did you mean 'importance'?"),
        (["--set", "density=7"], "not between"),
        (["--device", "mps"], "not available"),
        (["--task", "digits", "--task-option", "hiden=3"], "did you mean 'hidden'?"),
        (["--task", "gpt", "--data", "/nowhere/at/all"], "/nowhere/at/all"),
        (["--job", "a=digits", "--job", "b=digist"], "did you mean 'digits'?"),
        (["--job", "a=digits,hiden=3"], "did you mean 'hidden'?"),
        (["--job", "a=digits,polcy=gossip"], "did you mean 'policy'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_slip_is_found_before_the_network_starts(tmp_path, arguments, said):
    assert said in complaint(started(tmp_path / "data", *arguments))
    assert not (tmp_path / "data").exists(), "nothing came of this start, so nothing of it stays"


@pytest.mark.parametrize("way", [("--found", *JOIN[:2]), JOIN], ids=["founding there", "joining"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", "digist"], "did you mean 'digits'?"),
        (["--set", "densty=0.1"], "did you mean 'density'?"),
        (["--job", "a=digits,hiden=3"], "did you mean 'hidden'?"),
    ],
)
def test_a_slip_is_found_on_every_way_into_a_run(tmp_path, way, arguments, said):
    assert said in complaint(started(tmp_path / "data", *way, *arguments))


def test_a_signal_during_the_very_first_write_leaves_nothing(tmp_path):
    kill = """
import os, signal
write = os.fsync
def fsync(handle):
    os.kill(os.getpid(), signal.SIGTERM)
    write(handle)
os.fsync = fsync
"""
    done = started(tmp_path / "data", script=kill + SCRIPT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "data").exists()


def test_a_directory_that_was_there_keeps_what_was_in_it(tmp_path):
    (tmp_path / "config.toml").write_text('name = "ann"\n')
    complaint(started(tmp_path, "--task", "digist"))
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--job", "a=digits", "--only", "aa"], "did you mean 'a'?"),
        (["--split", "labels:11", "--part", "1/2"], "more labels than there are"),
        (["--split", "parts", "--part", "1/9999"], "cannot be dealt"),
        (["--task", "gpt"], "--data FILE"),
        (["--device", "cdua"], "did you mean 'cuda'?"),
        (["--until", "round:5"], "did you mean 'rounds'?"),
        (["--split", "dirchlet:0.3", "--part", "1/2"], "did you mean 'dirichlet'?"),
        (["--aim", "share"], "did you mean 'shared'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_founder_knows_even_more_before_the_network_starts(tmp_path, arguments, said):
    assert said in complaint(started(tmp_path / "data", *arguments))


def test_an_unknown_kind_of_job(tmp_path):
    config = tmp_path / "config.toml"
    config.write_text('[[job]]\nname = "a"\ntask = "digits"\nkind = "tran"\n')
    for way in ((), JOIN):
        assert "did you mean 'train'?" in complaint(started(tmp_path / "data", "--config", str(config), *way))


@pytest.mark.parametrize("way", [(), JOIN, ("--meet-only",)], ids=["founding", "joining", "meeting"])
def test_right_options_start_the_network(tmp_path, way):
    options = (
        () if "--meet-only" in way else ("--task", str(OWN), "--set", "density=0.1,explore=0.2", "--device", "cpu")
    )
    done = started(tmp_path / "data", *way, *options)
    assert (done.returncode, done.stderr) == (STARTED, "")
    assert done.stdout.endswith("the network starts\n")


@pytest.mark.parametrize(("way", "loaded"), [("join", False), ("resume", True), ("resume paused", False)])
def test_who_names_nothing_waits_for_torch_only_to_go_on_training(tmp_path, way, loaded):
    script = SCRIPT.replace('print("the network starts"', 'print("torch" in sys.modules')
    if way != "join":
        saved(tmp_path / "data", train_entry("main", plan()))
    if way == "resume paused":
        (tmp_path / "data" / "paused").write_text("by the user")
    done = started(tmp_path / "data", *(JOIN if way == "join" else ()), script=script)
    assert (done.returncode, done.stdout) == (STARTED, f"{loaded}\n")


# ---- a saved run ----


def saved(data_dir: Path, *entries: JobEntry) -> None:
    """A data directory of a node that founded a run with these jobs."""
    import random

    me = Identity(b"\x07" * 32)
    storage = DiskStorage(data_dir)
    storage.write("identity.key", me.to_key_file())
    save_run(storage, found_run(me, "saved", False, 1.0, random.Random(1), entries), ())


def plan(task: str = "digits", **more: object) -> TrainPlan:
    digest = "ab" * 32
    return TrainPlan(task, "1", {}, 9, digest, digest, digest, 1, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", "digist"], "did you mean 'digits'?"),
        (["--task", "fashion-mnist"], "this run learns 'digits'"),
        (["--policy", "gossip"], "contradicts the run"),
        (["--device", "mps"], "not available"),
        (["--task-option", "hiden=3"], "did you mean 'hidden'?"),
        (["--task-option", "hidden=3"], "contradicts the run"),
        (["--only", "mian"], "did you mean 'main'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_resumed_run_is_compared_with_the_options_before_the_network_starts(tmp_path, arguments, said):
    saved(tmp_path / "data", train_entry("main", plan()))
    assert said in complaint(started(tmp_path / "data", *arguments))


def test_a_task_that_is_gone_is_reported_before_the_network_starts(tmp_path):
    saved(tmp_path / "data", train_entry("main", plan("my-task")))
    assert "'my-task'" in complaint(started(tmp_path / "data"))


def test_of_several_jobs_one_may_be_missing_here(tmp_path):
    saved(tmp_path / "data", train_entry("one", plan()), train_entry("two", plan("my-task")))
    assert started(tmp_path / "data").returncode == STARTED
    assert "not available" in complaint(started(tmp_path / "data", "--device", "mps"))
    assert "did you mean 'hidden'?" in complaint(started(tmp_path / "data", "--job", "one=digits,hiden=5"))


def test_a_misspelt_variable_is_reported_and_costs_nothing(tmp_path, monkeypatch):
    script = SCRIPT.replace("import os, sys", "import os, sys; os.environ['P2PNODE_TSAK'] = 'text'", 1)
    done = started(tmp_path / "data", "--meet-only", script=script)
    assert done.returncode == STARTED
    assert done.stderr == "p2pnode: P2PNODE_TSAK is not a setting; did you mean 'P2PNODE_TASK'?\n"


def test_options_that_name_nothing_need_no_check():
    assert not Options().train.names_something
