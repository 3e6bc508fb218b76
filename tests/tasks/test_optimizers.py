"""Our optimizers against torch's own: the same bits after many steps; Muon within its rounding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from p2pnode.tasks import optimizers
from p2pnode.tasks.optimizers import AdamW, Clipped, Muon, Sgd, muon, orthogonal
from p2pnode.training.stepper import FlatStepper

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
    weights, parameter = start.clone(), nn.Parameter(start.clone())
    moments = own.fresh(weights)
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
    optimizer.step(one, gradient, optimizer.fresh(one), 0.5)
    half.step(other, gradient, half.fresh(other), 1.0)
    assert torch.equal(one, other)


SHAPES = [(20, 8), (3, 8, 8), (8, 8), (24, 8), (8,), (8, 24), (8,), (5,)]


def flat(parts: list[nn.Parameter]) -> torch.Tensor:
    return torch.cat([part.detach().reshape(-1) for part in parts])


@pytest.mark.parametrize("half", [True, False])
def test_muon_does_what_torch_does(monkeypatch, half):
    """Matrices by torch.optim.Muon, a stack of three one by one, the first matrix and all vectors by AdamW."""
    monkeypatch.setattr(optimizers, "fast_bfloat16", lambda device: half)
    chance = torch.Generator().manual_seed(2)
    parts = [nn.Parameter(torch.randn(shape, generator=chance)) for shape in SHAPES]
    own = muon(parts, 0.02, AdamW(0.003, betas=(0.9, 0.95)), others=parts[:1])
    weights, moments = flat(parts), own.fresh(flat(parts))
    begun = weights.clone()
    stack = [nn.Parameter(matrix.clone()) for matrix in parts[1].detach()]
    matrices = [*stack, parts[2], parts[3], parts[5]]
    theirs = torch.optim.Muon(matrices, lr=0.02, weight_decay=0.01)
    rest = torch.optim.AdamW([parts[0], parts[4], parts[6], parts[7]], lr=0.003, betas=(0.9, 0.95), foreach=False)
    for _ in range(20):
        for part in (*parts, *stack):
            part.grad = torch.randn(part.shape, generator=chance)
        parts[1].grad = torch.stack([part.grad for part in stack if part.grad is not None])
        own.step(weights, torch.cat([part.grad.reshape(-1) for part in parts if part.grad is not None]), moments, 1.0)
        theirs.step()
        rest.step()
        parts[1].data = torch.stack([part.data for part in stack])
    others = torch.cat([torch.ones(160), torch.zeros(192 + 64 + 192), torch.ones(8), torch.zeros(192), torch.ones(13)])
    assert torch.equal(weights[others == 1], flat(parts)[others == 1]), "AdamW is the same bit for bit"
    distance = (weights - flat(parts)).norm() / (flat(parts) - begun).norm()
    assert (flat(parts) - begun).norm() > 0 and distance < 0.02, "bfloat16 has 8 bits"


def test_orthogonal_matrices_have_singular_values_near_one_and_keep_their_directions():
    found = orthogonal(torch.randn(4, 12, 30, generator=torch.Generator().manual_seed(3)))
    assert found.shape == (4, 12, 30) and found.dtype == torch.float32
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.5 and values.max() < 1.5
    assert torch.isfinite(orthogonal(torch.zeros(1, 3, 3))).all(), "a gradient of zeros stays zeros"


def test_a_clipped_gradient_has_at_most_the_norm():
    seen = []

    class Notes(Sgd):
        def step(self, weights, gradient, moments, rate):
            seen.append(gradient.norm().item())

    clipped = Clipped(Notes(0.1), 1.0)
    for scale in (0.1, 1.0, 100.0):
        clipped.step(torch.zeros(4), torch.full((4,), 0.5 * scale), {}, 1.0)
    assert seen == pytest.approx([0.1, 1.0, 1.0], rel=1e-5)


@pytest.mark.parametrize("optimizer", [Sgd(0.1), AdamW(0.1), Muon(0.02, ((4, 3), (5,))), Clipped(AdamW(0.1), 1.0)])
def test_a_saved_optimizer_continues_bit_for_bit_and_refuses_what_belongs_to_another(optimizer):
    chance = torch.Generator().manual_seed(4)
    gradients = [torch.randn(17, generator=chance) for _ in range(6)]

    def stepped(stepper, weights, gradient, these):
        for one in these:
            gradient.copy_(one)
            stepper.step(1.0)
        return weights

    weights, gradient = torch.ones(17), torch.zeros(17)
    first = FlatStepper(optimizer, weights, gradient)
    first.load({})
    stepped(first, weights, gradient, gradients[:3])
    saved, resumed = first.arrays(), FlatStepper(optimizer, again := weights.clone(), gradient)
    resumed.load(saved)
    assert torch.equal(
        stepped(resumed, again, gradient, gradients[3:]), stepped(first, weights, gradient, gradients[3:])
    )
    for wrong in ({"other": saved[next(iter(saved))]}, {**saved, next(iter(saved)): saved[next(iter(saved))][:5]}):
        with pytest.raises(ValueError, match="belong to another optimizer"):
            resumed.load(wrong)
