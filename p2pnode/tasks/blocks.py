"""A model as a row of layers between its two ends, for jobs whose members hold only some of its parts.

    hidden = enter(batch);   hidden = layer.forward(hidden) for each layer;   losses = leave(hidden, batch)

Parameters of no layer are the ends: embeddings, the last norm, the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from .data import Samples


class Layer(NamedTuple):
    """One layer: the module whose parameters it has, and what it makes of hidden states."""

    module: nn.Module
    forward: Callable[[Tensor], Tensor]


class TaskBlocks(NamedTuple):
    """The layers of one model, and what comes before and after them."""

    enter: Callable[[Samples], Tensor]
    layers: Sequence[Layer]
    leave: Callable[[Tensor, Samples], Tensor]  # the loss of each sample

    def losses(self, batch: Samples) -> Tensor:
        """What `Task.losses` gives, computed layer by layer."""
        return self.leave(self.hidden(batch), batch)

    def hidden(self, batch: Samples) -> Tensor:
        """The hidden states after the last layer."""
        hidden = self.enter(batch)
        for layer in self.layers:
            hidden = layer.forward(hidden)
        return hidden


def layer_parameters(model: nn.Module, blocks: TaskBlocks) -> list[list[str]]:
    """The names of each layer's parameters, as the model names them; ValueError when two layers share one."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found: list[list[str]] = []
    seen: set[str] = set()
    for layer in blocks.layers:
        own = [names[id(parameter)] for parameter in layer.module.parameters() if id(parameter) in names]
        if seen & set(own):
            raise ValueError(f"two layers share the parameter {sorted(seen & set(own))[0]}")
        seen |= set(own)
        found.append(own)
    return found
