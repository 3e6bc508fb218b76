"""Loops as people write them: joined, they compute bit by bit what they compute alone, and a merge moves the weights by
exactly its change, whatever the model gives back and whatever stands between loss and step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from p2pnode.integrations.join import HookedLoop, LoopExtras
from p2pnode.integrations.ranks import Ranks
from p2pnode.jobs.loop.handover import WeightsChange


@dataclasses.dataclass
class Output:
    logits: Tensor
    loss: Tensor


class Body(nn.Module):
    """With dropout, BatchNorm, a frozen part, a buffer and tied weights."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fixed = nn.Linear(4, 4).requires_grad_(False)
        self.first, self.norm, self.drop = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3)
        self.middle, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.last.weight = self.middle.weight
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: Tensor) -> Any:
        hidden = self.drop(self.norm(self.first(self.fixed(self.scale * x))).relu())
        return self.last(self.middle(hidden).relu())


class GivesDict(Body):
    def forward(self, x: Tensor) -> Any:
        logits = super().forward(x)
        return {"logits": logits, "loss": logits.square().mean()}


class GivesDataclass(Body):
    def forward(self, x: Tensor) -> Any:
        logits = super().forward(x)
        return Output(logits, logits.square().mean())


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [part for part in model.parameters() if part.requires_grad]


class User:
    """What a user wrote: `make` gives optimizers, `step` makes one step."""

    model: Callable[[], nn.Module] = Body

    def make(self, model: Any) -> list[torch.optim.Optimizer]:
        return [torch.optim.AdamW(trained(model), 0.01)]

    def loss(self, model: Any, x: Tensor) -> Tensor:
        found: Tensor = model(x).square().mean()
        return found

    def step(self, model: Any, optimizers: list[torch.optim.Optimizer], x: Tensor) -> None:
        self.loss(model, x).backward()
        self.before_step(model)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def before_step(self, model: Any) -> None:
        pass


class Plain(User):
    pass


class Dicts(User):
    model = GivesDict

    def loss(self, model: Any, x: Tensor) -> Tensor:
        found: Tensor = model(x)["loss"]
        return found


class Dataclasses(User):
    model = GivesDataclass

    def loss(self, model: Any, x: Tensor) -> Tensor:
        found: Tensor = model(x).loss
        return found


class Clipped(User):
    def before_step(self, model: Any) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)


class Scheduled(User):
    def make(self, model: Any) -> list[torch.optim.Optimizer]:
        optimizer = torch.optim.SGD(trained(model), 0.1, momentum=0.9)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=12)
        return [optimizer]

    def step(self, model: Any, optimizers: list[torch.optim.Optimizer], x: Tensor) -> None:
        super().step(model, optimizers, x)
        self.schedule.step()


class Groups(User):
    def make(self, model: Any) -> list[torch.optim.Optimizer]:
        groups = [{"params": model.first.parameters()}, {"params": model.last.parameters(), "lr": 1e-4}]
        return [torch.optim.RMSprop(groups, 0.01)]


class Several(User):
    def make(self, model: Any) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(model.first.parameters(), 0.1), torch.optim.Adam(model.last.parameters(), 0.01)]


class HalfPrecision(User):
    def loss(self, model: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            found: Tensor = model(x).float().square().mean()
        return found


class Closure(User):
    """LBFGS calls its closure several times a step."""

    def make(self, model: Any) -> list[torch.optim.Optimizer]:
        return [torch.optim.LBFGS(trained(model), 0.1, max_iter=2)]

    def step(self, model: Any, optimizers: list[torch.optim.Optimizer], x: Tensor) -> None:
        def closure() -> Tensor:
            optimizers[0].zero_grad()
            loss = self.loss(model.eval(), x)
            loss.backward()
            return loss

        optimizers[0].step(closure)  # type: ignore[arg-type]


USERS = [Plain, Dicts, Dataclasses, Clipped, Scheduled, Groups, Several, HalfPrecision, Closure]


def course(user: User, joined: bool, change: float | None = None) -> tuple[list[Tensor], list[Tensor], int]:
    """The parameters and buffers after ten steps, and how many steps were counted. A merge comes after the last."""
    torch.manual_seed(0)
    model: Any = type(user).model()
    optimizers = user.make(model)
    loop = HookedLoop(model, optimizers, LoopExtras(), Ranks()) if joined else None
    draw = torch.Generator().manual_seed(1)
    for _ in range(10):
        user.step(model, optimizers, torch.randn(6, 4, generator=draw))
    counted = 0
    if loop is not None:
        counted = loop.handover.total
        if change is not None:
            loop.handover.hand_back(WeightsChange(np.full(loop.weights.layout.size, change, np.float32)))
            loop.handover.settle()
        loop.close()
    parts = [part.detach().clone() for part in trained(model)]
    return parts, [buffer.clone() for buffer in model.buffers()], counted


@pytest.mark.parametrize("kind", USERS)
def test_a_joined_loop_computes_what_it_computes_alone_and_a_merge_moves_it_by_its_change(kind: type[User]) -> None:
    alone, buffers, _ = course(kind(), joined=False)
    joined, same_buffers, counted = course(kind(), joined=True)
    assert counted == 10
    assert all(torch.equal(one, other) for one, other in zip(alone, joined, strict=True))
    assert all(torch.equal(one, other) for one, other in zip(buffers, same_buffers, strict=True))
    moved, same_buffers, _ = course(kind(), joined=True, change=0.5)
    model = kind.model()
    optimizers = kind().make(model)
    shared = {id(part) for one in optimizers for group in one.param_groups for part in group["params"]}
    held = [id(part) in shared for part in trained(model)]
    for before, after, shares in zip(alone, moved, held, strict=True):
        assert torch.equal(after, before + 0.5 if shares else before)
    assert all(torch.equal(one, other) for one, other in zip(buffers, same_buffers, strict=True))
