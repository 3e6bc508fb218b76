"""Taking fingerprints of models in training: of which layer, in which pieces, at what pace, and what is refused."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest
from torch import nn

from p2pnode.similarity.fingerprint import comparable, read_fingerprint, similarity
from p2pnode.tasks.digits import Digits
from p2pnode.tasks.gpt import Gpt
from p2pnode.tasks.task import Task, rows
from p2pnode.training.fingerprinter import SHARE_OF_TIME, Fingerprinter, activations
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import LocalProblem, TaskProblem


class Convolutional(Digits):
    """Another architecture for the same data."""

    def model(self):
        return nn.Sequential(
            nn.Unflatten(1, (1, 8)), Halves(), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
        )


class Halves(nn.Module):
    def forward(self, x):
        return x.float() / 8


class Dead(Digits):
    def model(self):
        model = super().model()
        nn.init.constant_(model.get_parameter("1.bias"), -1e6)
        return model


class Linear(Digits):
    def model(self):
        return nn.Sequential(nn.Flatten(), Halves(), nn.Linear(64, 10))


def taken(task: Task, steps: int = 0, seed: int = 1) -> bytes:
    model_host = ModelHost(task, seed=seed)
    trainer = Trainer(model_host, seed=seed)
    weights = trainer.steps(model_host.genesis, steps).weights if steps else model_host.genesis
    return Fingerprinter(model_host, 1).take(trainer, weights, lambda: 0.0)


def test_the_default_layer_is_what_goes_into_the_last_one() -> None:
    model_host = ModelHost(Digits(hidden=16))
    (found,) = activations(model_host, model_host.task.probe())
    assert found.shape == (128, 16)
    assert (found >= 0).all(), "after the ReLU"


def test_a_model_without_hidden_layers_shows_its_answers() -> None:
    model_host = ModelHost(Linear())
    (found,) = activations(model_host, model_host.task.probe())
    assert found.shape == (128, 10)


def test_named_layers_count_in_their_order(tmp_path) -> None:
    (tmp_path / "text").write_bytes(b"all the words of a small book " * 300)
    task = Gpt(source=str(tmp_path / "text"), width=8, heads=2, layers=2, context=16, test_windows=4)
    model_host = ModelHost(task)
    assert [layer.shape for layer in activations(model_host, task.probe())] == [(128, 15 * 8)]
    task.fingerprint_layers = ("blocks.0", "blocks.1")
    assert [layer.shape for layer in activations(model_host, task.probe())] == [(128, 15 * 8), (128, 15 * 8)]
    assert not comparable(taken(task), taken(Digits()))
    task.fingerprint_layers = ("block.0",)
    with pytest.raises(TaskProblem, match=r"block\.0"):
        activations(model_host, task.probe())


def test_the_size_of_batches_does_not_matter() -> None:
    whole, pieces = read_fingerprint(taken(Digits(), 20)), read_fingerprint(taken(Digits(evaluation_batch=7), 20))
    assert np.abs(whole.astype(int) - pieces.astype(int)).max() <= 1


def test_training_goes_on_as_if_none_had_been_taken() -> None:
    model_host = ModelHost(Digits(hidden=8))
    one, other = Trainer(model_host, seed=3), Trainer(model_host, seed=3)
    weights = one.steps(model_host.genesis, 5).weights
    assert np.array_equal(weights, other.steps(model_host.genesis, 5).weights)
    first = Fingerprinter(model_host, 1).take(one, weights, lambda: 0.0)
    assert first == Fingerprinter(model_host, 1).take(other, weights, lambda: 0.0)
    assert np.array_equal(one.steps(weights, 5).weights, other.steps(weights, 5).weights)


def test_other_architectures_compare() -> None:
    """Two models that learned the same task are more alike than one that learned it and one that did not."""
    perceptron, other = taken(Digits(), 200), taken(Convolutional(), 200)
    assert comparable(perceptron, other)
    learned = similarity(read_fingerprint(perceptron), read_fingerprint(other))
    assert learned > similarity(read_fingerprint(perceptron), read_fingerprint(taken(Convolutional())))


@pytest.mark.parametrize("spoil", [lambda weights: weights * np.nan, lambda weights: weights * 0])
def test_activations_that_say_nothing_are_a_local_problem(spoil) -> None:
    model_host = ModelHost(Digits(hidden=8))
    with pytest.raises(LocalProblem, match="no fingerprint: activations"):
        Fingerprinter(model_host, 1).take(Trainer(model_host), spoil(model_host.genesis), lambda: 0.0)
    with pytest.raises(LocalProblem, match="no fingerprint: activations"):
        taken(Dead(hidden=8))


@pytest.mark.parametrize("task", [Digits(hidden=8), Dead(hidden=8)])
def test_they_take_a_small_share_of_the_time_also_when_they_fail(task: Task) -> None:
    model_host = ModelHost(task)
    ticks = itertools.count()
    fingerprinter = Fingerprinter(model_host, 1)
    assert fingerprinter.due(0.0)
    with contextlib.suppress(LocalProblem):
        fingerprinter.take(Trainer(model_host), model_host.genesis, lambda: float(next(ticks)))
    earliest = next(now for now in itertools.count() if fingerprinter.due(float(now)))
    assert 1 / SHARE_OF_TIME <= earliest <= 3 / SHARE_OF_TIME


def test_a_probe_that_cannot_be_used_is_the_tasks_problem() -> None:
    class Single(Digits):
        def probe(self):
            return rows(self.test_data(), slice(0, 1))

    with pytest.raises(TaskProblem, match="probe"):
        Fingerprinter(ModelHost(Single()), 1)
