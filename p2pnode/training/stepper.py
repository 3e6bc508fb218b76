"""One trainer's optimizer: it steps, and saves what it remembers as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..storage.checkpoints import Arrays
from ..tasks.optimizers import Moments, Optimizer


class Stepper(Protocol):
    """An optimizer with its memory, bound to the vectors of a model host."""

    def step(self, rate: float) -> None:
        """Changes the host's weights by its gradient; `rate` multiplies the learning rate."""
        ...

    def arrays(self) -> Arrays:
        """What it remembers, for `load`."""
        ...

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restores what `arrays` returned; ValueError, and no change, when it belongs to another optimizer."""
        ...


class FlatStepper:
    """One of our own optimizers (tasks/optimizers.py) over the host's vector."""

    def __init__(self, optimizer: Optimizer, weights: Tensor, gradient: Tensor) -> None:
        self._optimizer = optimizer
        self._weights = weights
        self._gradient = gradient
        self._moments: Moments = {}

    def step(self, rate: float) -> None:
        if not self._moments:
            self._moments = self._optimizer.fresh(self._weights)
        self._optimizer.step(self._weights, self._gradient, self._moments, rate)

    def arrays(self) -> Arrays:
        return {name: as_array(moment) for name, moment in self._moments.items()}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        fresh = self._optimizer.fresh(self._weights) if arrays else {}
        if {name: array.shape for name, array in arrays.items()} != {name: like.shape for name, like in fresh.items()}:
            raise ValueError(f"moments {', '.join(sorted(arrays))[:200]} belong to another optimizer")
        self._moments = {name: _moment(array, fresh[name], name) for name, array in sorted(arrays.items())}


class TorchStepper:
    """A torch optimizer. Only the arrays and numbers in its state are saved."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._rates = [group["lr"] for group in optimizer.param_groups]
        self._parameters: list[torch.nn.Parameter] = [
            part for group in optimizer.param_groups for part in group["params"]
        ]

    def step(self, rate: float) -> None:
        for group, own in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = own * rate
        self._optimizer.step()

    def arrays(self) -> Arrays:
        return {
            f"{number}/{name}": as_array(value)
            for number, part in enumerate(self._parameters)
            for name, value in self._optimizer.state.get(part, {}).items()
            if isinstance(value, Tensor | int | float)
        }

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        found: dict[int, dict[str, Tensor]] = {}
        for name, array in sorted(arrays.items()):
            number, _, key = name.partition("/")
            if not number.isdecimal() or int(number) >= len(self._parameters) or not key:
                raise ValueError(f"moment {name!r} belongs to another optimizer")
            found.setdefault(int(number), {})[key] = _moment(array, self._parameters[int(number)], name)
        self._optimizer.state.clear()
        for place, state in found.items():
            self._optimizer.state[self._parameters[place]] = state


def _moment(array: NDArray[Any], like: Tensor, name: str) -> Tensor:
    if array.ndim and array.shape != tuple(like.shape):
        raise ValueError(f"moment {name!r} has shape {array.shape}, not {tuple(like.shape)}")
    if not np.isfinite(array).all():
        raise ValueError(f"moment {name!r} has values that are not finite")
    tensor = torch.from_numpy(np.array(array))
    return tensor.to(like.device) if array.ndim else tensor


def as_array(value: Tensor | float) -> NDArray[Any]:
    """A copy of a tensor or a number, as an array."""
    return value.detach().cpu().numpy().copy() if isinstance(value, Tensor) else np.array(value)
