"""The perceptrons of benchmarks.shards: all peers' in one batched product, so that a run takes seconds."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.shards_data import PIXELS
from benchmarks.shards_merges import Rows
from p2pnode.tasks.fashion_mnist import CLASSES

HIDDEN = 64
SHAPES = ((PIXELS, HIDDEN), (1, HIDDEN), (HIDDEN, CLASSES), (1, CLASSES))
SIZES = tuple(rows * columns for rows, columns in SHAPES)
EDGES = np.cumsum(SIZES)[:-1]


class Models:
    """A stack of each of the four tensors, one layer of it per peer."""

    def __init__(self, peers: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        first = [torch.randn(shape, generator=generator) for shape in SHAPES]
        first = [tensor * (len(tensor) ** -0.5 if len(tensor) > 1 else 0.0) for tensor in first]
        self.genesis = torch.cat([tensor.flatten() for tensor in first]).numpy()
        self._tensors = [tensor.repeat(peers, 1, 1).requires_grad_() for tensor in first]

    def get(self) -> Rows:
        with torch.no_grad():
            rows: Rows = torch.cat([tensor.flatten(1) for tensor in self._tensors], 1).numpy()
        return rows

    def put(self, rows: Rows) -> None:
        with torch.no_grad():
            for tensor, part in zip(self._tensors, np.split(rows, EDGES, axis=1), strict=True):
                tensor.copy_(torch.from_numpy(np.ascontiguousarray(part)).view_as(tensor))

    def outputs(self, x: Tensor) -> Tensor:
        """The outputs of all peers, each for its own layer of x."""
        first, first_bias, second, second_bias = self._tensors
        return torch.bmm(torch.relu(torch.bmm(x, first) + first_bias), second) + second_bias

    def step(self, loss: Tensor, rate: float) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for tensor in self._tensors:
                assert tensor.grad is not None
                tensor -= rate * tensor.grad
                tensor.grad = None


def outputs_of(weights: NDArray[np.float32], x: Tensor) -> Tensor:
    """The outputs of one peer's weights."""
    parts = [torch.from_numpy(part).view(shape) for part, shape in zip(np.split(weights, EDGES), SHAPES, strict=True)]
    first, first_bias, second, second_bias = parts
    return torch.relu(x @ first + first_bias) @ second + second_bias
