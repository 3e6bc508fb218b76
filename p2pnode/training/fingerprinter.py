"""Takes fingerprints of a model in training: its activations on the run's probe, by forward hooks. Heavy work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..compression.weights import Doubles, Floats
from ..similarity.fingerprint import INPUTS, Activations, Projection
from ..tasks.errors import task_errors
from ..tasks.task import Samples, Task, length, rows
from ..wire.errors import LocalProblem, TaskProblem
from .host import ModelHost
from .trainer import Trainer

SHARE_OF_TIME = 0.01  # of a node's time, for fingerprints
LEAST = 10.0  # seconds between two fingerprints: models change slowly


class Fingerprinter:
    """Takes one node's fingerprints in one run. `seed` is the run's."""

    def __init__(self, model_host: ModelHost, seed: int) -> None:
        with task_errors(model_host.task, "probe"):
            self._probe: Samples = rows(model_host.task.probe(), slice(0, INPUTS[1]))
            self._projection = Projection(seed, _inputs(model_host.task, self._probe))
        self._model_host = model_host
        self._next = 0.0

    def due(self, now: float) -> bool:
        """Whether the next fingerprint may be taken now."""
        return now >= self._next

    def take(self, trainer: Trainer, weights: Floats, clock: Callable[[], float]) -> bytes:
        """Heavy. The fingerprint of `weights`, and when the next one is due; LocalProblem as in `look`.

        Pass the weights right after training, before they merge: they show the effect of this node's own data. The
        longer a fingerprint takes, the longer it is until the next one.
        """
        begun = clock()
        try:
            return self.look(trainer, weights)
        finally:  # also after a failure, so that failures take no more time
            self._next = clock() + max(LEAST, (clock() - begun) / SHARE_OF_TIME)

    def look(self, trainer: Trainer, weights: Floats) -> bytes:
        """Heavy. The fingerprint of `weights`; LocalProblem when the activations are not usable."""
        try:
            with trainer.borrowed(weights):
                layers = activations(self._model_host, self._probe)
            return self._projection.fingerprint(layers)
        except ValueError as error:
            raise LocalProblem(f"no fingerprint: {error}") from None


def _inputs(task: Task, probe: Samples) -> Doubles:
    """The probe's inputs as numbers, a row for each input: all columns except the labels."""
    labels = task.labels(probe)
    columns = [probe[name] for name in sorted(probe) if probe[name] is not labels]
    return np.concatenate([column.double().reshape(len(column), -1).numpy() for column in columns], axis=1)


def activations(model_host: ModelHost, probe: Samples) -> list[Activations]:
    """The activations on the probe, a row for each input, for each layer that the task names.

    The task's own loss runs the model, because it knows how. There is no autocast, so that devices differ only by
    rounding.
    """
    model_host.model.eval()
    taken: list[list[Activations]] = []
    with torch.no_grad(), task_errors(model_host.task, "fingerprint"):
        for start in range(0, length(probe), model_host.task.evaluation_batch):
            part = rows(probe, slice(start, start + model_host.task.evaluation_batch))
            batch = {name: column.to(model_host.device) for name, column in part.items()}
            with _watched(model_host) as found:
                model_host.task.loss(model_host.model, batch)
            taken.append([as_rows(tensor, length(part)) for tensor in found()])
    return [np.concatenate(layer) for layer in zip(*taken, strict=True)]


@contextlib.contextmanager
def _watched(model_host: ModelHost) -> Iterator[Callable[[], list[Tensor]]]:
    """Records the layers' outputs while the model runs inside. The function that it yields returns them afterwards."""
    names = model_host.task.fingerprint_layers
    watched = _named(model_host, names) if names else with_weights(model_host.model)
    seen: dict[nn.Module, tuple[Any, Any]] = {}  # in the order of the first calls

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        seen.setdefault(module, (inputs, output))

    hooks = [module.register_forward_hook(note) for module in watched]
    try:
        yield lambda: [_named_output(seen, module) for module in watched] if names else [last_hidden(seen)]
    finally:
        for hook in hooks:
            hook.remove()


def _named(model_host: ModelHost, names: tuple[str, ...]) -> list[nn.Module]:
    there = dict(model_host.model.named_modules())
    missing = [name for name in names if name not in there]
    if missing:
        raise TaskProblem(
            f"task {model_host.task.name}: fingerprint_layers names {missing[0]!r}, which the model lacks"
        )
    return [there[name] for name in names]


def with_weights(model: nn.Module) -> list[nn.Module]:
    """The modules that have parameters of their own."""
    return [module for module in model.modules() if next(module.parameters(recurse=False), None) is not None]


def _named_output(seen: dict[nn.Module, tuple[Any, Any]], module: nn.Module) -> Tensor:
    if module not in seen:
        raise ValueError("a layer named in fingerprint_layers was not called by the loss")
    return _tensor(seen[module][1])


def last_hidden(seen: dict[nn.Module, tuple[Any, Any]]) -> Tensor:
    """The input of the last layer with weights; its output where it is the only one."""
    if not seen:
        raise ValueError("the loss called no layer with weights; name some in fingerprint_layers")
    inputs, output = next(reversed(seen.values()))
    return _tensor(output if len(seen) == 1 else inputs)


def _tensor(value: Any) -> Tensor:
    while isinstance(value, tuple | list) and value:
        value = value[0]
    if not isinstance(value, Tensor):
        raise ValueError(f"a layer gave {type(value).__name__}, not a tensor; name others in fingerprint_layers")
    return value


def as_rows(tensor: Tensor, count: int) -> Activations:
    """One row for each input. Layers that fold time or channels into the rows are unfolded again."""
    if tensor.ndim == 0 or len(tensor) % count:
        raise ValueError(f"a layer gave {tuple(tensor.shape)} for {count} inputs; name others in fingerprint_layers")
    found: Activations = tensor.detach().float().cpu().numpy().reshape(count, -1)
    return found
