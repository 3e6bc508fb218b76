"""A copy of the user's model on which the node tries weights out, while the model itself is in training.

It exists only where it is needed: to evaluate, for fingerprints, and for models with statistics of their inputs
(BatchNorm). Frozen parameters are shared with the model, so the copy of a model with adapters is as small as these.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from torch import Tensor, nn

from ...compression.weights import Doubles, Floats
from ...similarity.fingerprint import INPUTS, Projection
from ...tasks.task import Evaluation
from ...training.fingerprinter import as_rows, last_hidden, with_weights
from ...training.input_statistics import fit_statistics, norms_of
from ...wire.errors import LocalProblem
from .weights import split_vector

KEPT_INPUTS = 16  # batches of the loop that statistics are estimated on
KEEP_EVERY = 4  # steps

Evaluate = Callable[[nn.Module], Any]


class RecentInputs:
    """The latest inputs that the loop gave its model in training. Statistics that fit other weights need them."""

    def __init__(self, model: nn.Module) -> None:
        self._calls = 0
        self._kept: deque[tuple[tuple[Any, ...], dict[str, Any]]] = deque(maxlen=KEPT_INPUTS)
        self._hook = model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if module.training and torch.is_grad_enabled():
            if self._calls % KEEP_EVERY == 0:
                self._kept.append((detached(args), detached(kwargs)))
            self._calls += 1

    def all(self) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return list(self._kept)

    def close(self) -> None:
        self._hook.remove()


def detached(value: Any) -> Any:
    """The same without gradients, in lists and dicts too."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, Mapping):
        return {key: detached(item) for key, item in value.items()}
    return type(value)(map(detached, value)) if type(value) in (list, tuple) else value


class Replica:
    """A copy of a model into which any shared weights can be loaded. Heavy: use it in the compute thread."""

    def __init__(self, model: nn.Module, names: Sequence[str], inputs: RecentInputs | None) -> None:
        """`names` are the shared tensors of the model; `inputs` are kept where it has statistics."""
        frozen: dict[int, Any] = {id(part): part for part in model.parameters() if not part.requires_grad}
        self._source = model
        self._inputs = inputs
        hooks = {name: getattr(model, name) for name in ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs")}
        for name in hooks:
            setattr(model, name, type(hooks[name])())  # the copy's inputs are nothing to keep
        try:
            self.model: nn.Module = copy.deepcopy(model, frozen)
        finally:
            for name, found in hooks.items():
                setattr(model, name, found)
        vars(self.model).pop("forward", None)  # Accelerate's wrapper would call the user's model
        tensors: dict[str, Tensor] = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        for part in self.model.parameters():
            part.grad = None
        self._tensors = [tensors[name] for name in names]
        self._shared = set(names)
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def loaded(self, weights: Floats) -> Iterator[nn.Module]:
        """The model with these weights, statistics that fit them, and the loop's other buffers; in evaluation mode."""
        with self._lock, torch.no_grad():
            for part, view in zip(self._tensors, split_vector(torch.from_numpy(weights), self._tensors), strict=True):
                part.copy_(view)
            theirs = dict(self._source.named_buffers())
            for name, buffer in self.model.named_buffers():
                if name in theirs and name not in self._shared and theirs[name].shape == buffer.shape:
                    buffer.copy_(theirs[name])
            self._fit_statistics()
            self.model.eval()
            yield self.model

    def _fit_statistics(self) -> None:
        """Estimate statistics of inputs on the loop's latest batches."""
        batches = self._inputs.all() if self._inputs is not None else []
        norms = norms_of(self.model)
        if batches and norms:
            fit_statistics(self.model, norms, batches, lambda call: self.model(*call[0], **call[1]))

    def evaluate(self, weights: Floats, evaluate: Evaluate) -> Evaluation:
        """What the user's function says of these weights. LocalProblem when it raises, or returns no numbers."""
        with self.loaded(weights) as model:
            try:
                found = evaluate(model)
            except Exception as error:  # the user's code may raise anything; training must go on
                raise LocalProblem(f"evaluate() raised {type(error).__name__}: {error}") from error
        return read_evaluation(found)

    def state_dict(self, weights: Floats) -> dict[str, Any]:
        """The whole state dict with these weights, on the CPU; tied weights share one tensor."""
        with self.loaded(weights) as model:
            return copied_state(model)


def read_evaluation(found: Any) -> Evaluation:
    """What an evaluate function returned: an accuracy, (loss, accuracy), a dict with these keys, or an Evaluation."""
    if isinstance(found, Evaluation):
        return found
    try:
        if isinstance(found, Mapping):
            accuracy = found.get("accuracy")
            return Evaluation(float(found.get("loss", 0.0)), None if accuracy is None else float(accuracy), 0)
        if isinstance(found, tuple | list):
            loss, accuracy = found
            return Evaluation(float(loss), None if accuracy is None else float(accuracy), 0)
        return Evaluation(0.0, float(found), 0)
    except (TypeError, ValueError):
        raise LocalProblem(
            "evaluate() must return an accuracy, (loss, accuracy), or a dict with these keys, "
            f"not {type(found).__name__}"
        ) from None


def copied_state(model: nn.Module, shared: Mapping[str, Tensor] | None = None) -> dict[str, Any]:
    """A copy of a model's state dict on the CPU. Tied weights share one tensor; `shared` has other values for some."""
    copies: dict[object, Any] = {}
    state: dict[str, Any] = {}
    given = {} if shared is None else dict(shared)
    live = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    values = {_place(live[name]): value for name, value in given.items() if name in live}
    for name, value in model.state_dict().items():
        if isinstance(value, Tensor):
            place = _place(value) if value.numel() else name
            if place not in copies:
                source = values.get(place, value)
                copies[place] = source.detach().to("cpu", value.dtype, copy=True).contiguous()
            value = copies[place]
        state[name] = value
    return state


def _place(tensor: Tensor) -> object:
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


class Probe:
    """Inputs on which models are compared: the same at every member. A tensor, a tuple of them, or a dict by name."""

    def __init__(self, inputs: Any) -> None:
        """LocalProblem when these are no inputs that can be compared."""
        if isinstance(inputs, Tensor):
            inputs = (inputs,)
        named = isinstance(inputs, Mapping)
        self.args: tuple[Any, ...] = () if named else tuple(inputs)
        self.kwargs: dict[str, Any] = dict(inputs) if named else {}
        tensors = [value for value in (*self.args, *self.kwargs.values()) if isinstance(value, Tensor)]
        if not tensors or len({len(value) for value in tensors if value.ndim}) != 1:
            raise LocalProblem("probe= must be a tensor, a tuple or a dict of tensors of one length: a row an input")
        self.rows = len(tensors[0])
        if not INPUTS[0] <= self.rows <= INPUTS[1]:
            raise LocalProblem(f"probe= has {self.rows} inputs; {INPUTS[0]} to {INPUTS[1]} are possible")
        flat = [value.detach().cpu().double().reshape(self.rows, -1).numpy() for value in tensors]
        self._inputs: Doubles = np.concatenate(flat, axis=1)

    @property
    def hash(self) -> str:
        return blake3(np.ascontiguousarray(self._inputs).tobytes()).hexdigest()

    def projection(self, seed: int) -> Projection:
        """What makes fingerprints of activations; ValueError when the inputs do not serve."""
        return Projection(seed, self._inputs)


def take_fingerprint(replica: Replica, weights: Floats, probe: Probe, projection: Projection) -> bytes:
    """Heavy. The fingerprint of weights; LocalProblem when the model cannot be run on the probe."""
    seen: dict[nn.Module, tuple[Any, Any]] = {}

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        seen.setdefault(module, (inputs, output))

    try:
        with replica.loaded(weights) as model:
            hooks = [module.register_forward_hook(note) for module in with_weights(model)]
            try:
                model(*probe.args, **probe.kwargs)
            finally:
                for hook in hooks:
                    hook.remove()
            return projection.fingerprint([as_rows(last_hidden(seen), probe.rows)])
    except Exception as error:  # the user's model may fail in any way on a probe
        raise LocalProblem(f"no fingerprint: {type(error).__name__}: {error}") from None
