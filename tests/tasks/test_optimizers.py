"""Our optimizers against torch's own: the same bits after many steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from p2pnode.tasks.optimizers import AdamW, Sgd

CASES: dict[str, tuple[Sgd | AdamW, Callable[[list[nn.Parameter]], torch.optim.Optimizer]]] = {
    "sgd": (Sgd(0.05, momentum=0.0), lambda p: torch.optim.SGD(p, lr=0.05)),
    "momentum": (Sgd(0.05), lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
    "nesterov": (Sgd(0.05, nesterov=True), lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True)),
    "decay": (Sgd(0.05, weight_decay=0.1), lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1)),
    "adamw": (AdamW(0.003), lambda p: torch.optim.AdamW(p, lr=0.003, foreach=False)),
    "betas": (
        AdamW(0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2),
        lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.2, foreach=False),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_as_torch(name):
    own, make = CASES[name]
    chance = torch.Generator().manual_seed(1)
    start = torch.randn(1000, generator=chance)
    moments: dict[str, torch.Tensor] = {}
    weights, parameter = start.clone(), nn.Parameter(start.clone())
    theirs = make([parameter])
    for _ in range(50):
        gradient = torch.randn(1000, generator=chance)
        own.step(weights, gradient.clone(), moments, 1.0)
        parameter.grad = gradient
        theirs.step()
    assert torch.equal(weights, parameter.detach())


@pytest.mark.parametrize("optimizer", [Sgd(0.1), AdamW(0.1)])
def test_the_rate_multiplies_the_learning_rate(optimizer):
    half = type(optimizer)(0.05)
    one, other, gradient = torch.ones(3), torch.ones(3), torch.full((3,), 0.5)
    optimizer.step(one, gradient, {}, 0.5)
    half.step(other, gradient, {}, 1.0)
    assert torch.equal(one, other)
