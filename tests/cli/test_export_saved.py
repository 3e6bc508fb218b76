"""`export` from disk: what a node had saved, whatever circle it was in. `--settle` needs a running node."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from p2pnode.circles.members import CurrentCircle
from p2pnode.circles.transitions import split_off
from p2pnode.cli import app, commands, run
from p2pnode.cli.commands import export_settled, export_weights
from p2pnode.config.options import Options, TrainOptions
from p2pnode.jobs.contract import job_folder
from p2pnode.jobs.model.checkpoints import progress_folder
from p2pnode.jobs.train.binding import make_plan, open_model_host
from p2pnode.jobs.train.prepare import fresh_policy
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.policy import RoundFacts
from p2pnode.node.joining import found_run, save_run
from p2pnode.storage.checkpoints import CheckpointStore
from p2pnode.storage.datadir import open_data_dir
from p2pnode.training.trainer import Trainer
from p2pnode.wire.control import ControlAnswer, ControlRequest
from tests.jobs.train.setups import train_entry


def publish(policy: DeltaSetPolicy, seed: int) -> bytes:
    begun = policy.start()
    progress = np.random.default_rng(seed).normal(0, 0.01, len(begun)).astype(np.float32)
    return policy.publish(policy.record(begun, begun + progress, RoundFacts(5, 1.0, 160, 2)))


@pytest.mark.parametrize("split", [False, True])
def test_what_was_published_after_the_last_save_is_in_it_in_any_circle(tmp_path: Path, split: bool) -> None:
    options = TrainOptions("digits", device="cpu")
    model_host = open_model_host(options, 1)
    plan = make_plan(model_host, options, 1)
    data_dir = open_data_dir(tmp_path / "node")
    identity, storage = data_dir.identity(), data_dir.storage
    run = found_run(identity, "r", False, 5.0, random.Random(1), (train_entry("main", plan),))
    save_run(storage, run, ())
    policy = fresh_policy(plan, model_host, identity)
    assert isinstance(policy, DeltaSetPolicy)
    publish(policy, 1)
    if split:
        _, there = split_off(policy, identity, [identity.peer_id], 2, bytes.fromhex(plan.genesis))
        policy.move(there, there.weights(), 1)
    progress = CheckpointStore(storage, progress_folder(job_folder(run.access.run, "main")))
    trainer = {f"trainer/{name}": array for name, array in Trainer(model_host).state().items()}
    progress.save(
        {**policy.state(), **CurrentCircle("ab12" if split else "").arrays(), **trainer, "rounds": np.array([1])}
    )
    progress.note(publish(policy, 2))
    data_dir.close()
    export_weights(Options(data_dir=tmp_path / "node"), str(tmp_path / "model.safetensors"), shared=True)
    written = load_file(tmp_path / "model.safetensors")
    flat = np.concatenate([written[name].reshape(-1) for name, _ in model_host.layout.parameters])
    assert np.array_equal(flat, policy.weights())
    with safe_open(tmp_path / "model.safetensors", "numpy") as file:
        about = file.metadata()
    assert about["circle"] == ("ab12" if split else "") and about["round"] == "2"
    assert (about["run"], about["job"], about["task"]) == (run.access.run, "main", "digits")


def test_settling_needs_a_running_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, place = str(tmp_path / "model.pt"), ["--data-dir", str(tmp_path / "node")]
    assert run(app, ["export", file, "--settle", *place], "p2pnode") == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert run(app, ["export", file, "--settle", "--shared", *place], "p2pnode") == 2
    assert "leave out --shared" in capsys.readouterr().err
    assert not (tmp_path / "model.pt").exists() and not (tmp_path / "node").exists()


def test_settling_shows_how_far_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    far = [ControlAnswer(pending="settling: 0 of 150 steps")] * 2 + [ControlAnswer(pending="settling: 9 of 150 steps")]
    answers = iter([*far, ControlAnswer(said="wrote it")])

    def ask(place: Path, request: ControlRequest, limit: float) -> ControlAnswer:
        assert request.do == "export" and request.settle and request.file == str(tmp_path / "model.pt")
        return next(answers)

    monkeypatch.setattr(commands, "ask", ask)
    monkeypatch.setattr(commands, "SETTLING_LOOK", 0.0)
    export_settled(tmp_path, str(tmp_path / "model.pt"))
    assert capsys.readouterr().out.splitlines() == [
        "settling: 0 of 150 steps", "settling: 9 of 150 steps", "wrote it",
    ]  # fmt: skip
