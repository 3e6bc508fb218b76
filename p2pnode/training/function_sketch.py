"""What a task's model computes, in a few numbers, so that members notice when they do not train the same function.

The model runs on the first inputs of the probe in evaluation mode, with the buffers it was built with (those of
BatchNorm change in training), without autocast and without a gradient. What differs from run to run because the task
draws random numbers is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compression.weights import Floats
from ..similarity.sketch import MOST_VALUES, distance, sketch
from ..tasks.errors import task_errors
from ..tasks.task import Samples, rows
from ..wire.errors import LocalProblem
from ..wire.types import Sketch
from .host import ModelHost

INPUTS = 32  # of the probe
FIXED_SUMS = 8
FIXED_GROUPS = 64
RANDOM = 1e-3  # distance from which two runs with other random numbers are different


class FunctionSketch(NamedTuple):
    """The model's outputs on the probe and its losses; empty where they cannot be compared."""

    outputs: Sketch = ()
    losses: Sketch = ()


def function_sketch(model_host: ModelHost, weights: Floats) -> FunctionSketch:
    """Heavy. What the model computes with `weights`. Training is not affected."""
    try:
        with task_errors(model_host.task, "probe"):
            probe = rows(model_host.task.probe(), slice(0, INPUTS))
        one, other = (_run(model_host, weights, probe, seed) for seed in (1, 2))
    except LocalProblem:
        return FunctionSketch()  # the task's own fault, which training reports
    return FunctionSketch(*(a if distance(a, b) < RANDOM else () for a, b in zip(one, other, strict=True)))


def _run(model_host: ModelHost, weights: Floats, probe: Samples, seed: int) -> FunctionSketch:
    task, model, seen = model_host.task, model_host.model, list[Any]()
    with model_host.lock, model_host.randomness(seed), torch.no_grad(), task_errors(task, "loss"):
        model_host.put(weights)
        model_host.reset_buffers()
        model.eval()
        batch = {name: column.to(model_host.device) for name, column in probe.items()}
        hook = model.register_forward_hook(lambda module, inputs, output: seen.append(output))
        try:
            losses = task.losses(model, batch) if model_host.per_sample else task.loss(model, batch)
        finally:
            hook.remove()
        outputs = next(_tensors(seen), None)
        return FunctionSketch(() if outputs is None else sketch(_array(outputs)), sketch(_array(losses)))


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of floats in what a model gave, its logits first."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif hasattr(value, "logits"):
        yield from _tensors(value.logits)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)


def fixed_parts(model_host: ModelHost) -> list[tuple[str, Tensor]]:
    """What a model has besides the weights it trains: frozen parameters, and buffers as they were built."""
    frozen = [(f"frozen parameter {name!r}", part) for name, part in model_host.model.named_parameters()]
    trained = {part.data_ptr() for same in model_host.parts for part in same}
    parts = [(name, part) for name, part in frozen if not part.requires_grad and part.data_ptr() not in trained]
    return [*parts, *((f"buffer {name!r}", built) for name, built in model_host.built_buffers.items())]


def fixed_sketches(model_host: ModelHost) -> list[Sketch]:
    """Heavy. A small sketch of each fixed part, or of each of FIXED_GROUPS groups of them where there are more."""
    groups: list[list[NDArray[Any]]] = []
    parts = fixed_parts(model_host)
    for place, (_, part) in enumerate(parts):
        if group_of(place, len(parts)) == len(groups):
            groups.append([])
        groups[-1].append(_array(part))
    return [sketch(np.concatenate(group), FIXED_SUMS) for group in groups]


def group_of(place: int, count: int) -> int:
    return place * min(FIXED_GROUPS, count) // max(1, count)


def _array(tensor: Tensor) -> NDArray[Any]:
    """Returns at most MOST_VALUES of the numbers, evenly spread."""
    flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).detach().reshape(-1)
    flat = flat[:: -(-max(1, len(flat)) // MOST_VALUES)].cpu()
    found: NDArray[Any] = (flat.double() if flat.is_floating_point() else flat).numpy()
    return found
