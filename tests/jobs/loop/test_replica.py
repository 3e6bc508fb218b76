"""The copy of a user's model on which weights are tried out, while the model itself is in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from p2pnode.jobs.loop.replica import Probe, RecentInputs, Replica, copied_state, read_evaluation, take_fingerprint
from p2pnode.jobs.loop.weights import ModelWeights, shared_tensors
from p2pnode.tasks.task import Evaluation
from p2pnode.wire.errors import LocalProblem


@dataclass
class Output:
    """As of Hugging Face's models."""

    loss: torch.Tensor
    logits: torch.Tensor


class Model(nn.Module):
    """A frozen part, dropout, and a dataclass as output."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(4, 8).requires_grad_(False)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> Output:
        logits = self.head(self.drop(self.base(x)))
        return Output(logits.square().mean(), logits)


def made(model: nn.Module, inputs: RecentInputs | None = None) -> tuple[Replica, ModelWeights]:
    optimizer = torch.optim.SGD([part for part in model.parameters() if part.requires_grad], 0.1)
    tensors = shared_tensors(model, [optimizer])
    return Replica(model, list(tensors), inputs), ModelWeights(model, [optimizer], tensors)


def test_other_weights_are_evaluated_without_touching_the_model_or_copying_what_is_frozen() -> None:
    model = Model()
    replica, weights = made(model)
    x, live = torch.ones(3, 4), weights.read()
    zero = replica.evaluate(np.zeros_like(live), lambda copy: (copy(x).loss, 0.5))
    assert (zero.loss, zero.accuracy) == (0.0, 0.5)
    model.eval()
    mine = replica.evaluate(live, lambda copy: (copy(x).loss, None))  # dropout is off
    assert mine.loss == pytest.approx(model(x).loss.item(), rel=1e-6)
    assert (weights.read() == live).all()
    shared = {part.data_ptr() for part in replica.model.parameters()} & {part.data_ptr() for part in model.parameters()}
    assert shared == {model.base.weight.data_ptr(), model.base.bias.data_ptr()}


def test_a_wrapper_around_forward_does_not_lead_back_to_the_users_model() -> None:
    """As Accelerate wraps it for mixed precision."""
    model: Any = Model()
    inner = model.forward
    model.forward = lambda x: inner(x)
    replica, weights = made(model)
    zero = replica.evaluate(np.zeros(weights.layout.size, np.float32), lambda copy: copy(torch.ones(1, 4)).loss)
    assert zero.accuracy == 0.0


def test_statistics_fit_the_weights_that_are_loaded() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    inputs = RecentInputs(model)
    replica, weights = made(model, inputs)
    torch.manual_seed(0)
    batches = [torch.randn(64, 4) for _ in range(16)]
    for batch in batches:
        model(batch)
    other = weights.read() * 3.0
    with replica.loaded(other) as copy:
        outputs = copy(torch.cat(batches[::4]))  # what is kept of them
    normed = outputs.mean(0) - other_bias(other)
    assert normed.abs().max() < 0.05  # mean and variance are those of these weights, not of the model in training
    inputs.close()


def other_bias(weights: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(weights[-3:])


def test_fingerprints_are_of_the_weights_given() -> None:
    model = Model()
    replica, weights = made(model)
    probe = Probe({"x": torch.randn(64, 4, generator=torch.Generator().manual_seed(1))})
    projection = probe.projection(7)
    one = take_fingerprint(replica, weights.read(), probe, projection)
    assert take_fingerprint(replica, weights.read(), probe, projection) == one
    assert len(one) > 100
    with pytest.raises(LocalProblem, match="no fingerprint"):
        take_fingerprint(replica, weights.read(), Probe(torch.ones(64, 5)), projection)


def test_a_users_error_and_nonsense_are_reported() -> None:
    replica, weights = made(Model())
    with pytest.raises(LocalProblem, match=r"evaluate\(\) raised ZeroDivisionError"):
        replica.evaluate(weights.read(), lambda model: 1 / 0)
    with pytest.raises(LocalProblem, match="must return an accuracy"):
        read_evaluation("good")
    assert read_evaluation({"loss": 1, "accuracy": 0.5}) == Evaluation(1.0, 0.5, 0)
    assert read_evaluation(0.5) == Evaluation(0.0, 0.5, 0)
    with pytest.raises(LocalProblem, match="a row an input"):
        Probe("text")


def test_a_copied_state_has_tied_weights_once_and_other_values_where_given() -> None:
    model = nn.ModuleDict({"a": nn.Linear(2, 2, bias=False), "b": nn.Linear(2, 2, bias=False)})
    model["b"].weight = model["a"].weight
    state = copied_state(model, {"a.weight": torch.eye(2)})
    assert state["a.weight"] is state["b.weight"]
    assert torch.equal(state["a.weight"], torch.eye(2))
