"""Statistics that layers keep of their inputs (BatchNorm): nodes do not share them, so they are estimated anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

Batch = TypeVar("Batch")


def norms_of(model: nn.Module) -> list[Any]:
    """The modules with statistics of their inputs: BatchNorm, or InstanceNorm with `track_running_stats`."""
    return [module for module in model.modules() if isinstance(module, _NormBase) and module.running_mean is not None]


def fit_statistics(
    model: nn.Module, norms: Sequence[Any], batches: Iterable[Batch], forward: Callable[[Batch], object]
) -> list[Any]:
    """Estimate statistics as a plain mean over batches, in training mode but without dropout; nothing else is learned.

    Returns those of `norms` that were estimated: a model may hold some still.
    """
    model.train()
    fitted = [module for module in norms if module.training]
    for module in model.modules():
        if isinstance(module, _DropoutNd):
            module.eval()
    momenta = [module.momentum for module in fitted]
    for module in fitted:
        module.reset_running_stats()
    try:
        with torch.no_grad():
            for number, batch in enumerate(batches):
                for module in fitted:  # BatchNorm takes the mean by itself
                    module.momentum = None if isinstance(module, _BatchNorm) else 1 / (1 + number)
                forward(batch)
    finally:
        for module, momentum in zip(fitted, momenta, strict=True):
            module.momentum = momentum
    return fitted
