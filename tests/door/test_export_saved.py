"""`export` from disk: what a node had saved, whatever circle it was in."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from p2pnode.config import Config
from p2pnode.door.ordering import export_weights
from p2pnode.errors import LocalProblem
from p2pnode.merge.deltaset import DeltaSetPolicy
from p2pnode.merge.policy import Facts
from p2pnode.merge.setcircle import split_off
from p2pnode.node.learning.learner import fresh_policy
from p2pnode.node.meeting.joining import found_run, save_run
from p2pnode.node.partners.exchanging import MODEL
from p2pnode.node.taskchoice import TaskChoice
from p2pnode.node.training.workshop import make_plan, open_bench
from p2pnode.store.datadir import open_data_dir
from p2pnode.store.progress import Progress


def publish(policy: DeltaSetPolicy, seed: int) -> bytes:
    begun = policy.start()
    progress = np.random.default_rng(seed).normal(0, 0.01, len(begun)).astype(np.float32)
    return policy.publish(policy.record(begun, begun + progress, Facts(5, 1.0, 160, 2)))


@pytest.mark.parametrize("split", [False, True])
def test_what_was_published_after_the_last_save_is_in_it_in_any_circle(tmp_path: Path, split: bool) -> None:
    choice = TaskChoice("digits", device="cpu")
    bench = open_bench(choice, 1)
    plan = make_plan(bench, choice, 1)
    data_dir = open_data_dir(tmp_path / "node")
    identity, storage = data_dir.identity(), data_dir.storage
    run = found_run(identity, "r", False, 5.0, random.Random(1), plan)
    save_run(storage, run, ())
    policy = fresh_policy(plan, bench, identity)
    assert isinstance(policy, DeltaSetPolicy)
    publish(policy, 1)
    if split:
        _, there = split_off(policy, [identity.peer_id], 2, bytes.fromhex(plan.genesis))
        policy.move(there, there.weights(), 1)
    progress = Progress(storage, f"runs/{run.access.run}/{MODEL}")
    progress.save(policy.state())
    progress.note(publish(policy, 2))
    data_dir.close()
    export_weights(Config(data_dir=tmp_path / "node"), str(tmp_path / "model.safetensors"), ema=False)
    with pytest.raises(LocalProblem, match="name another file"):
        export_weights(Config(data_dir=tmp_path / "node"), "/proc/model.safetensors", ema=False)
    written = load_file(tmp_path / "model.safetensors")
    flat = np.concatenate([written[name].reshape(-1) for name, _ in bench.layout.parameters])
    assert np.array_equal(flat, policy.weights())
