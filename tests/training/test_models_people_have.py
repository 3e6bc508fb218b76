"""Models and optimizers as people have them: a task trains each of them to the weights of a plain torch loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from p2pnode.compression.weights import Floats, layout_of, read_weights
from p2pnode.tasks.digits import Digits
from p2pnode.tasks.task import Task, rows
from p2pnode.training.batches import seed_from
from p2pnode.training.host import ModelHost, build_model
from p2pnode.training.pool import PoolState
from p2pnode.training.trainer import Trainer
from tests.known import known

STEPS = 12


@dataclass
class Outputs:
    """What models of Hugging Face give."""

    logits: Tensor
    loss: Tensor | None = None


class Base(nn.Module):
    """A hidden layer and a head; subclasses differ in what people do."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(64, 16), nn.Linear(16, 10)

    def scores(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(torch.relu(self.body(x.flatten(1).float() / 16)))
        return result

    def forward(self, x: Tensor) -> Any:
        return self.scores(x)


class InDict(Base):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"hidden": x.float(), "logits": self.scores(x)}


class InRecord(Base):
    def forward(self, x: Tensor) -> Outputs:
        return Outputs(self.scores(x))


class OwnLoss(Base):
    """Computes its loss by itself, as models of Hugging Face do when they get labels."""

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Outputs:
        assert labels is not None
        logits = self.scores(x)
        return Outputs(logits, functional.cross_entropy(logits, labels))


class Dropout(Base):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def scores(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.drop(torch.relu(self.body(x.flatten(1).float() / 16))))
        return result


class Normed(Base):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def scores(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(torch.relu(self.norm(self.body(x.flatten(1).float() / 16))))
        return result


class Frozen(Base):
    def __init__(self) -> None:
        super().__init__()
        self.body.requires_grad_(False)


class Tied(Base):
    """The same matrix twice, once transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.back = nn.Linear(64, 16)
        self.back.weight = self.body.weight

    def scores(self, x: Tensor) -> Tensor:
        flat = x.flatten(1).float() / 16
        hidden = torch.relu(self.body(flat))
        result: Tensor = self.head(torch.relu(self.back(hidden @ self.body.weight)))
        return result


class WithBuffers(Base):
    """A running mean that forward moves in training, and a fixed scale."""

    mean: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(64))
        self.register_buffer("scale", torch.tensor(0.5))

    def scores(self, x: Tensor) -> Tensor:
        flat = x.flatten(1).float() / 16
        if self.training:
            self.mean.mul_(0.9).add_(flat.detach().mean(0), alpha=0.1)
        result: Tensor = self.head(torch.relu(self.body((flat - self.mean) * self.scale)))
        return result


class People(Digits):
    """Any of these models, with an optimizer as people have it."""

    batch_size = 16

    def __init__(self, kind: type[Base] = Base, tool: str = "sgd", **options: Any) -> None:
        super().__init__(**options)
        self.made, self.tool = kind, tool

    def model(self) -> nn.Module:
        return self.made()

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        return TOOLS[self.tool](list(parameters))

    def rate(self, step: int) -> float:
        return warm_up(step) if self.tool == "scheduled" else 1.0


class WithOwnLoss(People):
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        loss: Tensor = model(batch["x"], batch["y"]).loss
        return loss


def warm_up(step: int) -> float:
    return min(1.0, (step + 1) / 8)


def sgd(parts: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parts, lr=0.1, momentum=0.9)


def clip(parts: list[nn.Parameter]) -> None:
    nn.utils.clip_grad_norm_(parts, 0.3)


def clipped(parts: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Gradient clipping by the hook that torch offers for it."""
    made = sgd(parts)
    made.register_step_pre_hook(lambda *_: clip(parts))
    return made


def grouped(parts: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Other rates and weight decay for matrices than for biases, and clipping of all together."""
    matrices, others = [part for part in parts if part.ndim > 1], [part for part in parts if part.ndim == 1]
    made = torch.optim.AdamW(
        [{"params": matrices, "lr": 0.01, "weight_decay": 0.1}, {"params": others, "lr": 0.002, "weight_decay": 0.0}]
    )
    made.register_step_pre_hook(lambda *_: clip(parts))
    return made


TOOLS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": sgd,
    "clipped": clipped,
    "grouped": grouped,
    "scheduled": sgd,
}


def by_p2pnode(task: Task) -> tuple[Trainer, Floats, list[Tensor]]:
    """The weights after some local steps, and the batches."""
    trainer = Trainer(ModelHost(task, seed=2), seed=3)
    batches = [trainer.pool.next()[0] for _ in range(STEPS)]
    trainer.pool.restore(PoolState(), 0)
    return trainer, trainer.steps(trainer.model_host.genesis, STEPS).weights, batches


def by_torch(task: People, batches: list[Tensor]) -> nn.Module:
    """The same in a plain loop, with the loss written out."""
    model = build_model(task, 2).train()
    tool = TOOLS[task.tool]([part for part in model.parameters() if part.requires_grad])
    scheduler = torch.optim.lr_scheduler.LambdaLR(tool, warm_up if task.tool == "scheduled" else lambda step: 1.0)
    data = task.data()
    with torch.random.fork_rng():
        torch.manual_seed(seed_from(3, "steps", 0))
        for which in batches:
            batch = rows(data, which)
            tool.zero_grad()
            if isinstance(model, OwnLoss):
                loss = model(batch["x"], batch["y"]).loss
            else:
                assert isinstance(model, Base)
                loss = functional.cross_entropy(model.scores(batch["x"]), batch["y"])
            loss.backward()
            tool.step()
            scheduler.step()
    return model


@pytest.mark.parametrize("kind", [Base, InDict, InRecord, Dropout, Normed, Frozen, Tied, WithBuffers])
def test_a_model_is_trained_as_by_a_plain_loop(kind: type[Base]) -> None:
    task = People(kind)
    trainer, weights, batches = by_p2pnode(task)
    model = by_torch(task, batches)
    np.testing.assert_allclose(weights, read_weights(model, layout_of(model)), rtol=0, atol=1e-6)
    buffers = {name: array for name, array in trainer.state().items() if name.startswith("buffer/")}
    for name, buffer in model.named_buffers():
        np.testing.assert_allclose(buffers[f"buffer/{name}"], buffer.numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("tool", ["clipped", "grouped", "scheduled"])
def test_clipping_groups_and_schedules_do_what_they_do_in_a_plain_loop(tool: str) -> None:
    task = People(tool=tool)
    _, weights, batches = by_p2pnode(task)
    model = by_torch(task, batches)
    np.testing.assert_allclose(weights, read_weights(model, layout_of(model)), rtol=0, atol=1e-6)
    _, without, _ = by_p2pnode(People())
    assert np.abs(weights - without).max() > 1e-3  # it made a difference


def test_a_model_that_computes_its_loss_is_trained_by_it() -> None:
    task = WithOwnLoss(OwnLoss)
    trainer, weights, batches = by_p2pnode(task)
    model = by_torch(task, batches)
    np.testing.assert_allclose(weights, read_weights(model, layout_of(model)), rtol=0, atol=1e-6)
    assert not trainer.model_host.per_sample


@pytest.mark.parametrize(("kind", "task"), [(InDict, People), (InRecord, People), (OwnLoss, WithOwnLoss)])
def test_accuracy_is_known_whatever_the_outputs_are_wrapped_in(kind: type[Base], task: type[People]) -> None:
    trainer = Trainer(ModelHost(task(kind), seed=2), seed=3)
    weights = trainer.steps(trainer.model_host.genesis, 150).weights
    found, test = trainer.evaluate(weights), Digits().test_data()
    with trainer.borrowed(weights), torch.no_grad():
        model = trainer.model_host.model.eval()
        assert isinstance(model, Base)
        counted = float((model.scores(test["x"]).argmax(1) == test["y"]).float().mean())
    assert known(found.accuracy) == pytest.approx(counted) and counted > 0.85


def test_dropout_is_off_in_evaluation() -> None:
    trainer = Trainer(ModelHost(People(Dropout), seed=2))
    assert trainer.evaluate(trainer.model_host.genesis) == trainer.evaluate(trainer.model_host.genesis)
