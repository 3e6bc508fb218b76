"""Sgd and AdamW over one vector. Their results equal those of torch.optim bit for bit.

torch.optim loads torch's compiler when it is first used (2 s, 70 MB), and its bookkeeping takes a quarter of a small
model's step. A task may still return a torch optimizer, which is then used as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Moments = dict[str, Tensor]  # what an optimizer remembers: vectors as long as the weights, and counts


class Optimizer(Protocol):
    """How a gradient changes the weights. It is a plain value: the caller keeps what it remembers in `moments`."""

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

    @torch.no_grad()
    def step(self, weights: Tensor, gradient: Tensor, moments: Moments, rate: float) -> None:
        if self.weight_decay:
            gradient = gradient.add(weights, alpha=self.weight_decay)
        if self.momentum:
            buffer = moments.get("momentum")
            if buffer is None:
                buffer = moments["momentum"] = gradient.clone()
            else:
                buffer.mul_(self.momentum).add_(gradient)
            gradient = gradient.add(buffer, alpha=self.momentum) if self.nesterov else buffer
        weights.add_(gradient, alpha=-self.lr * rate)


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay, like torch.optim.AdamW."""

    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01

    @torch.no_grad()
    def step(self, weights: Tensor, gradient: Tensor, moments: Moments, rate: float) -> None:
        if not moments:
            moments.update(first=torch.zeros_like(weights), second=torch.zeros_like(weights), steps=torch.zeros(()))
        first, second, lr = moments["first"], moments["second"], self.lr * rate
        moments["steps"] += 1
        steps = moments["steps"].item()
        weights.mul_(1 - lr * self.weight_decay)
        first.lerp_(gradient, 1 - self.betas[0])
        second.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
        scale = math.sqrt(1 - self.betas[1] ** steps)
        weights.addcdiv_(first, second.sqrt().div_(scale).add_(self.eps), value=-lr / (1 - self.betas[0] ** steps))
