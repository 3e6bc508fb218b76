"""Sgd, AdamW and Muon over one vector. The first two equal torch.optim bit for bit, Muon does within its rounding.

torch.optim loads torch's compiler when it is first used (2 s, 70 MB), and its bookkeeping takes a quarter of a small
model's step. A task may still return a torch optimizer, which is then used as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

Moments = dict[str, Tensor]  # what an optimizer remembers: vectors, and counts
Shapes = tuple[tuple[int, ...], ...]


class Optimizer(Protocol):
    """How a gradient changes the weights. It is a plain value: the caller keeps what it remembers in `moments`."""

    def fresh(self, weights: Tensor) -> Moments:
        """What it remembers before the first step. Saved moments must have these names and shapes."""
        ...

    def step(self, weights: Tensor, gradient: Tensor, moments: Moments, rate: float) -> None:
        """Changes weights and moments in place; `rate` multiplies the learning rate."""
        ...


@dataclass(frozen=True)
class Sgd:
    """Gradient descent with momentum, like torch.optim.SGD."""

    lr: float
    momentum: float = 0.9
    weight_decay: float = 0.0
    nesterov: bool = False

    def fresh(self, weights: Tensor) -> Moments:
        return {"momentum": torch.zeros_like(weights)} if self.momentum else {}

    @torch.no_grad()
    def step(self, weights: Tensor, gradient: Tensor, moments: Moments, rate: float) -> None:
        if self.weight_decay:
            gradient = gradient.add(weights, alpha=self.weight_decay)
        if self.momentum:
            buffer = moments["momentum"].mul_(self.momentum).add_(gradient)
            gradient = gradient.add(buffer, alpha=self.momentum) if self.nesterov else buffer
        weights.add_(gradient, alpha=-self.lr * rate)


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay, like torch.optim.AdamW."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01

    def fresh(self, weights: Tensor) -> Moments:
        return {"first": torch.zeros_like(weights), "second": torch.zeros_like(weights), "steps": torch.zeros(())}

    @torch.no_grad()
    def step(self, weights: Tensor, gradient: Tensor, moments: Moments, rate: float) -> None:
        moments["steps"] += 1
        self.update(weights, gradient, moments["first"], moments["second"], moments["steps"].item(), rate)

    def update(
        self, weights: Tensor, gradient: Tensor, first: Tensor, second: Tensor, steps: float, rate: float
    ) -> None:
        """One step, the `steps`-th, for weights whose moments are these."""
        lr = self.lr * rate
        weights.mul_(1 - lr * self.weight_decay)
        first.lerp_(gradient, 1 - self.betas[0])
        second.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
        scale = math.sqrt(1 - self.betas[1] ** steps)
        weights.addcdiv_(first, second.sqrt().div_(scale).add_(self.eps), value=-lr / (1 - self.betas[0] ** steps))


@dataclass(frozen=True)
class Clipped:
    """Another optimizer, whose gradient is first scaled to at most this norm, like torch's clip_grad_norm_."""

    optimizer: Optimizer
    norm: float

    def fresh(self, weights: Tensor) -> Moments:
        return self.optimizer.fresh(weights)

    @torch.no_grad()
    def step(self, weights: Tensor, gradient: Tensor, moments: Moments, rate: float) -> None:
        length = torch.linalg.vector_norm(gradient).item()
        if length > self.norm:
            gradient.mul_(self.norm / (length + 1e-6))
        self.optimizer.step(weights, gradient, moments, rate)


@dataclass(frozen=True)
class Muon:
    """Momentum made orthogonal for matrices, like torch.optim.Muon; another optimizer, AdamW, for all other weights.

    A parameter with more than two dimensions is a stack of matrices. Embeddings and the output layer are matrices that
    Muon is not meant for: they are named in `others`.
    """

    lr: float
    shapes: Shapes  # of all parameters, in the order of the vector
    others: frozenset[int] = frozenset()  # numbers of the parameters that are no matrices of a hidden layer
    momentum: float = 0.95
    weight_decay: float = 0.01
    rest: AdamW = field(default_factory=lambda: AdamW(0.003, betas=(0.9, 0.95)))

    def fresh(self, weights: Tensor) -> Moments:
        _, others = _places(self.shapes, self.others)
        count = sum(place.stop - place.start for place in others)
        return {"first": torch.zeros_like(weights), "second": weights.new_zeros(count), "steps": torch.zeros(())}

    @torch.no_grad()
    def step(self, weights: Tensor, gradient: Tensor, moments: Moments, rate: float) -> None:
        groups, others = _places(self.shapes, self.others)
        first, lr = moments["first"], self.lr * rate
        moments["steps"] += 1
        steps, begin = moments["steps"].item(), 0
        for place in others:
            second = moments["second"][begin : (begin := begin + place.stop - place.start)]
            self.rest.update(weights[place], gradient[place], first[place], second, steps, rate)
        for group in groups:
            for place in group.places:
                first[place].lerp_(gradient[place], 1 - self.momentum)
            updates = [gradient[place].lerp(first[place], self.momentum) for place in group.places]
            scale = lr * math.sqrt(max(1.0, group.rows / group.columns))
            whole = orthogonal(torch.cat(updates).view(-1, group.rows, group.columns)).reshape(-1)
            begin = 0
            for place in group.places:
                update = whole[begin : (begin := begin + place.stop - place.start)]
                weights[place].mul_(1 - lr * self.weight_decay).add_(update, alpha=-scale)


def muon(parameters: Iterable[nn.Parameter], lr: float, rest: AdamW, others: Iterable[nn.Parameter] = ()) -> Muon:
    """Muon for the matrices among a model's parameters, but for `others`, which `rest` learns with all vectors."""
    found, excluded = list(parameters), {id(one) for one in others}
    numbers = frozenset(number for number, one in enumerate(found) if id(one) in excluded)
    return Muon(lr, tuple(tuple(one.shape) for one in found), numbers, rest=rest)


class _Group(NamedTuple):
    """Matrices of one shape, which are made orthogonal together."""

    rows: int
    columns: int
    places: tuple[slice, ...]  # in the vector; each has one matrix or several


@cache
def _places(shapes: Shapes, others: frozenset[int]) -> tuple[tuple[_Group, ...], tuple[slice, ...]]:
    """The groups of matrices in the vector, and the places of all other weights; neighbours are one place."""
    groups: dict[tuple[int, int], list[slice]] = {}
    rest: list[slice] = []
    begin = 0
    for number, shape in enumerate(shapes):
        place = slice(begin, begin := begin + math.prod(shape))
        into = rest if len(shape) < 2 or number in others else groups.setdefault((shape[-2], shape[-1]), [])
        into[-1:] = _with_neighbour(into[-1:], place)
    return tuple(_Group(*shape, tuple(places)) for shape, places in groups.items()), tuple(rest)


def _with_neighbour(last: list[slice], place: slice) -> Iterator[slice]:
    """The last place and a new one, as one where they touch."""
    if last and last[0].stop == place.start:
        yield slice(last[0].start, place.stop)
    else:
        yield from (*last, place)


STEPS = 5  # of the Newton-Schulz iteration, whose coefficients are those of torch.optim.Muon
A, B, C = 3.4445, -4.7750, 2.0315
TINY = 1e-7


def orthogonal(matrices: Tensor) -> Tensor:
    """Nearly orthogonal matrices in place of some (count, rows, columns): all singular values are about 1.

    It computes in bfloat16 where the hardware does, as torch.optim.Muon always does; elsewhere that would be slow.
    """
    turned = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if turned else matrices
    x = x.to(torch.bfloat16 if fast_bfloat16(matrices.device.type) else torch.float32, copy=True)
    x.div_(x.flatten(1).norm(dim=1)[:, None, None].clamp(min=TINY))
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return (x.mT if turned else x).float()


@cache
def fast_bfloat16(device: str) -> bool:
    """Whether the hardware multiplies matrices in bfloat16 itself, which is several times as fast as in float32."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    checks = (getattr(torch.cpu, f"_is_{name}_supported", lambda: False) for name in ("avx512_bf16", "amx_tile"))
    return device == "cpu" and any(bool(check()) for check in checks)
