"""The model host: one model and its data on one device, used by any number of trainers in turn.

All trainable parameters are in one vector and their gradients in another. So loading and reading weights is one copy,
an elementwise optimizer takes a few operations, and hundreds of simulated nodes can share one model.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import psutil
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..compression.weights import Floats, WeightLayout, layout_of, read_weights
from ..config.readers import DEVICES
from ..shards.rows import Rows, row_range
from ..shards.shard import sample_ids
from ..tasks.data import Data, as_data, as_test_data
from ..tasks.errors import task_errors
from ..tasks.optimizers import fast_bfloat16
from ..tasks.task import ContractBroken, Evaluation, Samples, Task, has_sample_losses, labels_of, length
from ..wire.errors import LocalProblem, TaskProblem, UsageError
from .input_statistics import norms_of
from .stepper import FlatStepper, Stepper, TorchStepper

ELEMENTWISE = ("SGD", "Adam", "AdamW")  # torch optimizers that treat every number by itself
BYTES_PER_PARAMETER = 28  # weights, gradient, two moments, and the node's three vectors
MAX_CLASSES = 1024  # that nodes report to each other
LOOKED_AT = 1024  # rows that say in which range the numbers of data lie that are not in memory
FAR_OUT = 10.0  # times the largest number of our own data; a sample of others beyond that is refused


class NoSamples(LocalProblem):
    """There are samples to evaluate on, and none of them can be read now."""


class ModelHost:
    """A task's model and data. Trainers hold `lock` while they use it."""

    def __init__(self, task: Task, device: str = "cpu", seed: int = 0) -> None:
        """Builds everything once, the model from `seed`; TaskProblem or LocalProblem when that fails."""
        self.task = task
        self.device = choose_device(device)
        self.lock = threading.RLock()
        self._seed = seed
        check_memory(task)
        with task_errors(task, "data"):
            self.data = as_data(task.data())
        with task_errors(task, "test_data"):
            self.test = as_test_data(task.test_data())
        made = _make_model(task, seed)
        self._frozen = {name: part.dtype for name, part in made.named_parameters() if not part.requires_grad}
        self.model = made.float().to(self.device)
        self.layout = checked_layout(task, self.model)
        self.parts = _with_tied(self.model, self.layout)
        self.weights, self.gradient = _bind(self.parts, self.device)
        kept = self.model.state_dict().keys()
        self._buffers = [name for name, _ in self.model.named_buffers() if name in kept]
        self.built_buffers = {name: buffer.detach().clone() for name, buffer in self.buffers.items()}
        self.per_sample = has_sample_losses(task) and not self.data.is_stream  # whether losses of samples are known
        self.norms = norms_of(self.model)

    @property
    def genesis(self) -> Floats:
        """The initial weights of the seed. They are built each time, since only the start needs them."""
        with self.lock:  # all threads share torch's generator, and trainers draw from it
            model = build_model(self.task, self._seed)
        try:
            return read_weights(model, self.layout)
        except ValueError as error:
            raise TaskProblem(f"task {self.task.name}: {error}") from None

    @property
    def samples(self) -> int:
        return len(self.data)

    @property
    def rows(self) -> Rows:
        """All rows of the data."""
        return row_range(0, self.samples)

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The buffers of the state dict by name. They are looked up anew, since a model may replace them."""
        return {name: self.model.get_buffer(name) for name in self._buffers}

    def state_dict(self) -> dict[str, Any]:
        """A copy of the loaded model's whole state dict on the CPU: trained and frozen parameters, and buffers.

        Tied weights share memory in the copy too. Frozen parameters have the precision that the task gave them.
        """
        copies: dict[object, Any] = {}
        state: dict[str, Any] = {}
        for name, value in self.model.state_dict().items():
            if isinstance(value, Tensor):
                place = (value.data_ptr(), value.shape, value.stride(), value.dtype) if value.numel() else name
                if place not in copies:
                    copies[place] = (
                        value.detach().to("cpu", self._frozen.get(name, value.dtype), copy=True).contiguous()
                    )
                value = copies[place]
            state[name] = value
        return state

    @cached_property
    def labels(self) -> NDArray[np.int64] | None:
        """The class of each sample; None where there are none."""
        with task_errors(self.task, "labels"):
            return labels_of(self.task, self.data)

    @cached_property
    def classes(self) -> int:
        """The number of classes, if the test data have labels too and all nodes agree on their meaning; else 0."""
        with task_errors(self.task, "labels"):
            test = labels_of(self.task, self.test)
        if self.labels is None or test is None or min(int(self.labels.min()), int(test.min())) < 0:
            return 0
        most = max(int(self.labels.max()), int(test.max())) + 1
        return most if most <= MAX_CLASSES else 0

    @cached_property
    def limits(self) -> dict[str, tuple[float, float]]:
        """The range of numbers that each column may have: any byte; floats somewhat beyond our own data."""
        pieces = [piece for data in (self.data, self.test) for piece in _looked_at(data)]
        found: dict[str, tuple[float, float]] = {}
        for name, column in self.data.empty.items():
            some = [piece[name] for piece in pieces if name in piece]
            low, high = (min(float(one.min()) for one in some), max(float(one.max()) for one in some))
            far = FAR_OUT * max(abs(low), abs(high), 1.0)
            found[name] = (-far, far) if column.is_floating_point() or not self.data.in_memory else (low, high)
            if column.element_size() == 1:
                found[name] = (-128.0, 255.0)
        return found

    def check_samples(self, samples: Samples) -> None:
        """ValueError when samples of others, which have our columns, have numbers beyond `limits`."""
        for name, column in samples.items():
            low, high = self.limits[name]
            if not (low <= float(column.min()) and float(column.max()) <= high):  # NaN is neither
                raise ValueError(f"column {name!r} has numbers beyond {low:g} to {high:g}")

    @cached_property
    def row_of(self) -> dict[bytes, int]:
        """The row of each sample by its hash (shards.shard.sample_ids); the first row when it is there twice.

        Empty where that would mean to read all of a large data set: a sample that is received is then a further one.
        """
        if not self.data.small:
            return {}
        ids = sample_ids({name: column.numpy() for name, column in next(self.data.pieces(self.samples)).items()})
        return {id: row for row, id in reversed(list(enumerate(ids)))}

    def put(self, weights: Floats) -> None:
        """Loads weights into the model."""
        self.weights.copy_(torch.from_numpy(weights))

    def take(self) -> Floats:
        """A copy of the model's weights."""
        return np.array(self.weights.detach().cpu().numpy(), dtype=np.float32, copy=True)

    def reset_buffers(self) -> None:
        """Loads the buffers that the model was built with."""
        for name, buffer in self.buffers.items():
            buffer.copy_(self.built_buffers[name])

    def stepper(self) -> Stepper:
        """A new optimizer of the task: over the one vector where the result is the same, else over the parameters."""
        with task_errors(self.task, "optimizer"):
            made = self.task.optimizer([same[0] for same in self.parts])
            if not isinstance(made, torch.optim.Optimizer):
                return FlatStepper(made, self.weights, self.gradient)
            if not self._same_when_flat(made):
                return TorchStepper(made)
            flat = nn.Parameter(self.weights)  # shares memory with the model
            flat.grad = self.gradient
            again = self.task.optimizer([flat])
            return TorchStepper(again if isinstance(again, torch.optim.Optimizer) else made)

    def _same_when_flat(self, made: torch.optim.Optimizer) -> bool:
        one_group = len(made.param_groups) == 1
        complete = one_group and sum(part.numel() for part in made.param_groups[0]["params"]) == self.layout.size
        return complete and type(made).__name__ in ELEMENTWISE

    def batch(self, indices: Tensor) -> dict[str, Tensor]:
        """Rows of the data set, on the device; BadData when one cannot be read."""
        return self.on_device(self.data.rows(indices))

    def on_device(self, samples: Samples) -> dict[str, Tensor]:
        if self.device.type == "cpu":
            return dict(samples)
        return {name: column.to(self.device, non_blocking=True) for name, column in samples.items()}

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        return autocast(self.device, self.task.bfloat16_on_cpu)

    def loss(self, batch: Samples) -> Tensor:
        """The task's loss, with autocast where it helps."""
        with self._autocast():
            return self.task.loss(self.model, batch)

    def losses(self, batch: Samples) -> Tensor:
        """The loss of each sample of a batch, for a task that has them (`per_sample`)."""
        with self._autocast():
            return self.task.losses(self.model, batch)

    def check_losses(self, losses: Tensor, batch: Samples) -> None:
        """ContractBroken, which is a ValueError, unless there is one loss for each sample."""
        if losses.shape != (length(batch),):
            shown = f"{tuple(losses.shape)}" if losses.ndim else "one number"
            raise ContractBroken(
                "losses",
                f"must give {length(batch)} numbers, one for each sample, not {shown}; "
                "compute them with reduction='none', or override loss() instead, which gives their mean",
            )

    def evaluate(self, samples: Samples | Data) -> Evaluation:
        """How good the loaded weights are on samples; the mean over pieces of those that are not in memory."""
        self.model.eval()
        pieces = samples.pieces(self.task.evaluation_batch) if isinstance(samples, Data) else [samples]
        with task_errors(self.task, "evaluate"), torch.no_grad(), self._autocast():
            return mean_evaluation([self.task.evaluate(self.model, self.on_device(piece)) for piece in pieces])

    @contextlib.contextmanager
    def randomness(self, seed: int) -> Iterator[None]:
        """Seeds torch's random numbers (dropout) inside, and restores them afterwards."""
        devices = [torch.cuda.current_device()] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.default_generator.manual_seed(seed)
            if devices:
                torch.cuda.manual_seed(seed)
            yield


def build_model(task: Task, seed: int) -> nn.Module:
    """The task's model as `seed` initialises it, on the CPU. Other users of torch's random numbers are not affected."""
    return _make_model(task, seed).float()  # autocast lowers precision where it helps; small steps need all 24 bits


def _make_model(task: Task, seed: int) -> nn.Module:
    """The same in the precision that the task gives it."""
    with torch.random.fork_rng([]), task_errors(task, "model"):
        torch.default_generator.manual_seed(seed)
        model = task.model()
    if not isinstance(model, nn.Module):
        raise TaskProblem(f"task {task.name}: model() gave {type(model).__name__}, not a torch module")
    if not any(part.requires_grad for part in model.parameters()):
        raise TaskProblem(f"task {task.name}: the model has no trainable parameters")
    return model


def checked_layout(task: Task, model: nn.Module) -> WeightLayout:
    """The layout of a task's model; TaskProblem when its parameters cannot be one vector."""
    try:
        return layout_of(model)
    except ValueError as error:
        raise TaskProblem(f"task {task.name}: {error}") from None


def _with_tied(model: nn.Module, layout: WeightLayout) -> list[list[nn.Parameter]]:
    """Each parameter of the layout, together with those tied to it."""
    named = dict(model.named_parameters())
    places = {name: (part.device, part.data_ptr()) for name, part in named.items()}
    tied = [[named[other] for other in named if places[other] == places[name]] for name, _ in layout.parameters]
    for (name, shape), same in zip(layout.parameters, tied, strict=True):
        if any(part.shape != shape or part.stride() != same[0].stride() for part in same):
            raise TaskProblem(f"parameter {name} shares its memory with one of another shape; tie whole parameters")
    return tied


def _bind(parts: list[list[nn.Parameter]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Moves the parameters into one vector and their gradients into another."""
    total = sum(same[0].numel() for same in parts)
    weights, gradient = torch.empty(total, device=device), torch.zeros(total, device=device)
    start = 0
    for same in parts:
        end = start + same[0].numel()
        weights[start:end] = same[0].detach().reshape(-1)
        for part in same:
            part.data = weights[start:end].view(part.shape)
            part.grad = gradient[start:end].view(part.shape)
        start = end
    return weights, gradient


def _looked_at(data: Data) -> Iterable[Samples]:
    """All samples that are in memory, or some of those that must be read."""
    return (data if data.in_memory else data.spread(LOOKED_AT)).pieces(LOOKED_AT)


def mean_evaluation(found: list[Evaluation]) -> Evaluation:
    """Evaluations of several pieces as one; NoSamples when there is none, because no row could be read."""
    if len(found) == 1:
        return found[0]
    samples = sum(one.samples for one in found)
    if not samples:
        raise NoSamples("none of the samples to evaluate on can be read")
    right = [one.accuracy * one.samples for one in found if one.accuracy is not None]
    accuracy = sum(right) / samples if len(right) == len(found) else None
    return Evaluation(sum(one.loss * one.samples for one in found) / samples, accuracy, samples)


def check_memory(task: Task) -> None:
    """LocalProblem when the model does not fit into memory. A model that cannot be built on `meta` tensors passes."""
    try:
        with torch.device("meta"), _NoFilling(), torch.random.fork_rng([]):
            count = sum(part.numel() for part in task.model().parameters())
    except Exception:  # the user's code may fail in any way on tensors without data
        return
    needed, free = count * BYTES_PER_PARAMETER, psutil.virtual_memory().available
    if needed > free:
        raise LocalProblem(
            f"task {task.name}: a model of {count / 1e6:,.0f} M parameters needs about {needed / 1e9:,.1f} GB to train "
            f"and {free / 1e9:,.1f} GB are free; choose a smaller one"
        )


class _NoFilling(TorchFunctionMode):
    """Skips operations that write into tensors: `meta` tensors have no data, and torch loads 800 modules for them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        target = args[0] if args else (kwargs or {}).get("tensor")
        if name.endswith("_") and not name.endswith("__") and isinstance(target, Tensor):
            return target
        return func(*args, **(kwargs or {}))


def choose_device(wanted: str) -> torch.device:
    """The device by name; `auto` takes CUDA, else MPS, else the CPU. UsageError when it is not available."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if wanted == "auto":
        return torch.device("cuda" if there["cuda"] else "mps" if there["mps"] else "cpu")
    kind = wanted.partition(":")[0]
    if kind not in there:
        raise UsageError(f"{wanted[:40]!r} is not a device; one of {', '.join(DEVICES)}")
    if not there[kind]:
        raise UsageError(f"device {wanted[:40]} is not available to torch here; use --device cpu or auto")
    return torch.device(wanted)


def autocast(device: torch.device, on_cpu: bool = False) -> contextlib.AbstractContextManager[object]:
    """bfloat16 where the hardware computes in it; elsewhere it costs more than it gains.

    On a processor only `on_cpu`: small models gain nothing there.
    """
    if (device.type == "cuda" or on_cpu) and fast_bfloat16(device.type):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()
