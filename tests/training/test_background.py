"""Next to the local steps: gradients that disturb nothing, and a thread nobody waits for."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from p2pnode.compression.selectors.influence import LossInfluence
from p2pnode.compression.weights import to_units
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.policy import PolicySetup
from p2pnode.tasks.find import load_task
from p2pnode.training.background import BackgroundWorker, feed_gradients
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.ids import Identity


@pytest.fixture(scope="module")
def model_host() -> ModelHost:
    return ModelHost(load_task("digits"), seed=0)


def test_slopes_are_what_the_next_step_follows_and_change_nothing(model_host: ModelHost) -> None:
    """SGD's step is the gradient times the rate; a trainer that looks goes on like one that does not."""
    looking, plain = Trainer(model_host, seed=3), Trainer(model_host, seed=3)
    begun = looking.steps(model_host.genesis, 4).weights
    assert np.array_equal(begun, plain.steps(model_host.genesis, 4).weights)
    (slope,) = looking.gradients_at([begun])
    after = looking.steps(begun, 1).weights
    assert np.array_equal(after, plain.steps(begun, 1).weights)
    assert float(slope @ (begun - after)) > 0
    again = looking.gradients_at([begun, after])
    assert len(again) == 2
    assert not np.array_equal(again[0], slope), "another batch comes next"


def test_without_samples_there_is_nothing_to_look_at(model_host: ModelHost) -> None:
    with pytest.raises(LocalProblem):
        Trainer(model_host, np.empty(0, np.int64)).gradients_at([model_host.genesis])


@pytest.mark.parametrize(("settings", "looks"), [({}, None), ({"importance": 1.0}, None), ({"influence": 1.0}, 2)])
def test_influence_is_measured_where_it_is_used_and_only_now_and_then(
    model_host: ModelHost, settings: dict[str, float], looks: int | None
) -> None:
    origin = PolicySetup(
        to_units(model_host.genesis), Identity(bytes(32)), "00" * 32, "main", model_host.layout.hash, settings, 1
    )
    policy, trainer = DeltaSetPolicy(origin), Trainer(model_host, seed=1)
    for _ in range(31):
        weights = trainer.steps(model_host.genesis, 10).weights
        feed_gradients(policy.can.selector, trainer, weights)
    gradients = policy.author.selector.gradients
    assert (gradients.looks if isinstance(gradients, LossInfluence) else gradients) == looks


def test_work_that_comes_while_the_thread_is_busy_is_dropped() -> None:
    worker, go, done = BackgroundWorker(), threading.Event(), threading.Event()
    ran: list[int] = []

    def slow() -> None:
        go.wait(10)
        ran.append(1)
        done.set()

    worker(slow)
    worker(lambda: ran.append(2))
    assert ran == [], "nobody waited"
    go.set()
    assert done.wait(10)
    running = worker._running
    assert running is not None
    running.result(10)
    worker(lambda: ran.append(3))
    worker._thread.shutdown(wait=True)
    assert ran == [1, 3]


def test_a_bug_in_background_work_shows() -> None:
    worker = BackgroundWorker()

    def wrong() -> None:
        raise ZeroDivisionError

    worker(wrong)
    worker._thread.shutdown(wait=True)
    with pytest.raises(ZeroDivisionError):
        worker(lambda: None)
