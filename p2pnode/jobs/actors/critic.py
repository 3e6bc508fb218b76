"""The critic: a value network that all members share. Its weights are one vector, as merge policies need them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ...compression.weights import Floats, WeightLayout
from .advantage import CLIP, Array

LEARNING_RATE = 3e-3
MAX_GRADIENT = 0.5
MOST = CLIP * CLIP  # of a value, either way
HUBER = 1.0  # distance from its target beyond which a value's error counts linearly: no target pulls without bound


def critic_layout(features: int, width: int) -> WeightLayout:
    """Names and shapes of the weights."""
    sizes = ((features, width), (width, width), (width, 1))
    rows: list[tuple[str, tuple[int, ...]]] = []
    for number, (inputs, outputs) in enumerate(sizes):
        rows += [(f"layer{number}.weight", (outputs, inputs)), (f"layer{number}.bias", (outputs,))]
    return WeightLayout(tuple(rows))


def first_weights(features: int, width: int, seed: int) -> Floats:
    """The weights that all members begin with: uniform (Glorot), the same on every machine; the output begins at 0."""
    rng, parts = np.random.default_rng(seed), []
    for name, shape in critic_layout(features, width).parameters:
        if len(shape) == 1 or name.startswith("layer2"):
            parts.append(np.zeros(int(np.prod(shape)), np.float32))
        else:
            bound = np.sqrt(6.0 / sum(shape))
            parts.append(((rng.random(int(np.prod(shape))) * 2 - 1) * bound).astype(np.float32))
    return np.concatenate(parts)


class Critic:
    """One copy of the critic with its optimizer. Heavy: use it in the compute thread."""

    def __init__(self, features: int, width: int, weights: Floats, seed: int) -> None:
        layout = critic_layout(features, width)
        self._parts = [nn.Parameter(torch.empty(shape)) for _, shape in layout.parameters]
        self._optimizer = torch.optim.Adam(self._parts, lr=LEARNING_RATE, eps=1e-5, fused=True)
        self._rng = np.random.default_rng(seed)
        self.steps = 0  # of gradient descent
        self.load(weights)

    def _forward(self, features: Tensor) -> Tensor:
        """Values [rows]. Inputs go through a signed logarithm, so that no unit of an observation is too large."""
        w1, b1, w2, b2, w3, b3 = self._parts
        hidden = torch.sign(features) * torch.log1p(features.abs())
        hidden = torch.tanh(torch.addmm(b1, hidden, w1.t()))
        hidden = torch.tanh(torch.addmm(b2, hidden, w2.t()))
        return torch.addmm(b3, hidden, w3.t()).squeeze(1)

    @property
    def weights(self) -> Floats:
        """A copy."""
        return np.concatenate([part.detach().numpy().reshape(-1) for part in self._parts])

    def load(self, weights: Floats) -> None:
        """Go on from these weights, with the optimizer's moments as they are."""
        start = 0
        with torch.no_grad():
            for part in self._parts:
                part.copy_(torch.from_numpy(weights[start : start + part.numel()]).view(part.shape))
                start += part.numel()

    def values(self, features: Array) -> Array:
        """What the critic says of these states, within bounds; 0 where that is not a number."""
        with torch.no_grad():
            found: Array = self._forward(torch.from_numpy(features)).nan_to_num_(0.0).clamp_(-MOST, MOST).numpy()
        return found

    def learn(self, data: Sequence[tuple[Array, Array]], steps: int, batch: int) -> float:
        """Gradient steps towards targets; returns the mean loss. Every part (features, targets) is drawn as often."""
        if not data or not steps:
            return 0.0
        losses, share = 0.0, max(1, batch // len(data))
        for _ in range(steps):
            picks = [self._rng.integers(0, len(targets), share) for _, targets in data]
            features = np.concatenate([part[0][pick] for part, pick in zip(data, picks, strict=True)])
            targets = np.concatenate([part[1][pick] for part, pick in zip(data, picks, strict=True)])
            loss = nn.functional.huber_loss(
                self._forward(torch.from_numpy(features)), torch.from_numpy(targets), delta=HUBER
            )
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self._parts, MAX_GRADIENT)
            self._optimizer.step()
            losses += float(loss.detach())
        self.steps += steps
        return losses / steps
