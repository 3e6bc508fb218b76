"""The blocks of a model that one machine holds, and what it computes with them. All methods are heavy.

The parameters of all other blocks take no memory. A held block has its weights and its gradients in one vector each,
and an optimizer of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from math import prod
from typing import NamedTuple

import numpy as np
import torch
from blake3 import blake3
from torch import Tensor, nn

from ...compression.weights import Floats, to_units
from ...merging.deltaset.set import weights_hash
from ...tasks.blocks import Layer, TaskBlocks, layer_parameters
from ...tasks.errors import task_errors
from ...tasks.task import Samples, Task, length
from ...training.host import autocast, build_model, checked_layout, choose_device
from ...training.stepper import FlatStepper, Stepper, TorchStepper
from ...wire.errors import UsageError
from ..blocks.layout import ModelPart, ModelParts, cut_model
from .spans import MAX_BLOCKS, BlockSpan

ENDS = -1  # the number of the part that is no block: what comes before the first and after the last one


class Left(NamedTuple):
    """What leaving the last block gave: the sum of losses, and the gradient of the hidden states."""

    loss: float
    gradient: Floats


class HeldPart:
    """The weights, the gradients and the optimizer of one part in memory."""

    def __init__(self, task: Task, part: ModelPart, parameters: list[nn.Parameter], device: torch.device) -> None:
        self.part = part
        self.weights = torch.zeros(part.size, device=device)
        self.gradient = torch.zeros(part.size, device=device)  # that is added up now
        self.closed: Tensor | None = None  # that waits to be stepped with
        self.steps = 0
        self._parameters = parameters
        start = 0
        for parameter, (_, shape) in zip(parameters, part.layout.parameters, strict=True):
            stop = start + prod(shape)
            parameter.data = self.weights[start:stop].view(shape)
            parameter.grad = self.gradient[start:stop].view(shape)
            start = stop
        self._stepped = torch.zeros(part.size, device=device)
        self._stepper = self._make_stepper(task)

    def _make_stepper(self, task: Task) -> Stepper:
        with task_errors(task, "optimizer"):
            flat = [nn.Parameter(torch.empty(0)) for _ in self._parameters]
            for mine, parameter in zip(flat, self._parameters, strict=True):
                mine.data, mine.grad = parameter.data, torch.zeros_like(parameter)
            made = task.optimizer(flat)
            if not isinstance(made, torch.optim.Optimizer):
                return FlatStepper(made, self.weights, self._stepped)
            start = 0
            for mine in flat:
                mine.grad = self._stepped[start : start + mine.numel()].view(mine.shape)
                start += mine.numel()
            return TorchStepper(made)

    def put(self, weights: Floats) -> None:
        self.weights.copy_(torch.from_numpy(weights))

    def move(self, change: Floats) -> None:
        """Add something to the weights."""
        self.weights.add_(torch.from_numpy(change).to(self.weights.device))

    def take(self) -> Floats:
        """A copy of the weights."""
        return np.array(self.weights.cpu().numpy(), np.float32, copy=True)

    def close(self) -> None:
        """Begin a new sum of gradients; the old one waits."""
        self.closed = self.gradient.clone()
        self.gradient.zero_()

    def step(self, samples: int, rate: float) -> bool:
        """One step of the optimizer with the mean of the closed gradients; False, and no step, if it is not finite."""
        assert self.closed is not None
        torch.div(self.closed, max(1, samples), out=self._stepped)
        self.closed = None
        if not samples or not bool(torch.isfinite(self._stepped.sum())):
            return False
        self._stepper.step(rate)
        self.steps += 1
        return True

    def release(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None
            parameter.data = torch.empty(0)


class ModelOutline:
    """A task's model cut into its blocks, as every member finds it from the plan, without its weights."""

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        """UsageError when the task's model cannot be cut into blocks."""
        self.task = task
        self.device = choose_device(device)
        self._seed = seed
        model = build_model(task, seed)
        blocks = self._cut(model)
        self.layout = checked_layout(task, model)
        self.parts: ModelParts = self._parts(model, blocks)
        self.blocks = len(blocks.layers)
        self.genesis = self._genesis(model)
        for parameter in model.parameters():
            parameter.data = torch.empty(0)
        self.model = model.to(self.device)
        self.model.train()
        self.task_blocks = blocks

    def _cut(self, model: nn.Module) -> TaskBlocks:
        with task_errors(self.task, "blocks"):
            blocks = self.task.blocks(model)
        if blocks is None:
            raise UsageError(
                f"task {self.task.name} has no blocks, so its model cannot be divided among machines; use --task gpt, "
                "or give your task a method blocks() (docs/pipeline.md)"
            )
        if not 2 <= len(blocks.layers) <= MAX_BLOCKS:
            raise UsageError(
                f"task {self.task.name}: a pipeline needs 2 to {MAX_BLOCKS} blocks, and the model has "
                f"{len(blocks.layers)}"
            )
        return blocks

    def _parts(self, model: nn.Module, blocks: TaskBlocks) -> ModelParts:
        try:
            return cut_model(self.layout, layer_parameters(model, blocks), len(blocks.layers))
        except ValueError as error:
            raise UsageError(f"task {self.task.name}: blocks(): {error}") from None

    def part(self, number: int) -> ModelPart:
        """A block, or the ends."""
        return self.parts.ends if number == ENDS else self.parts.levels[number]

    def _genesis(self, model: nn.Module) -> str:
        """The hash of the first weights, part by part, so that they need not be in memory as one vector."""
        numbers = [ENDS, *range(self.blocks)]
        hashes = b"".join(weights_hash(to_units(self._values(model, number))) for number in numbers)
        return blake3(b"p2pnode pipeline genesis 1\0" + hashes).hexdigest()

    def _values(self, model: nn.Module, number: int) -> Floats:
        named = dict(model.named_parameters())
        names = [name for name, _ in self.part(number).layout.parameters]
        return np.concatenate([named[name].detach().float().reshape(-1).numpy() for name in names])

    def first_weights(self, numbers: Collection[int]) -> dict[int, Floats]:
        """The first weights of some parts. The whole model is built for a moment."""
        model = build_model(self.task, self._seed)
        return {number: self._values(model, number) for number in numbers}


class LocalBlocks:
    """Computes with the parts that this machine holds."""

    def __init__(self, outline: ModelOutline) -> None:
        self.outline = outline
        self.parts: dict[int, HeldPart] = {}
        self._layers: list[Layer] = list(outline.task_blocks.layers)

    def hold(self, number: int, weights: Floats) -> HeldPart:
        """Hold a part from now on."""
        named, part = dict(self.outline.model.named_parameters()), self.outline.part(number)
        parameters = [named[name] for name, _ in part.layout.parameters]
        held = HeldPart(self.outline.task, part, parameters, self.outline.device)
        held.put(weights)
        self.parts[number] = held
        return held

    def release(self, number: int) -> None:
        held = self.parts.pop(number, None)
        if held is not None:
            held.release()

    # ---- blocks ----

    def forward(self, span: BlockSpan, hidden: Floats) -> Floats:
        """What these blocks make of hidden states."""
        with torch.no_grad(), self._computing():
            return _array(self._through(span, self._tensor(hidden)))

    def backward(self, span: BlockSpan, hidden: Floats, gradient: Floats, counted: bool = True) -> Floats:
        """The gradient of the hidden states before these blocks, from that after them.

        The gradients of the parameters are added up if `counted`. The forward pass is computed again.
        """
        inputs = self._tensor(hidden).requires_grad_()
        with self._computing():
            outputs = self._through(span, inputs)
        given = self._tensor(gradient).to(outputs.dtype)
        if counted:
            torch.autograd.backward(outputs, given)
            assert inputs.grad is not None
            return _array(inputs.grad)
        return _array(torch.autograd.grad(outputs, inputs, given)[0])

    def take_out(self, span: BlockSpan, hidden: Floats, gradient: Floats, closed: Collection[int]) -> None:
        """Subtract what `backward` added; for blocks in `closed` from the sum that waits to be stepped with."""
        kept = {number: self.parts[number].gradient.clone() for number in closed}
        for number in closed:
            self.parts[number].gradient.zero_()
        self.backward(span, hidden, -gradient)
        for number, before in kept.items():
            held = self.parts[number]
            if held.closed is not None:
                held.closed.add_(held.gradient)
            held.gradient.copy_(before)

    def _through(self, span: BlockSpan, hidden: Tensor) -> Tensor:
        for layer in self._layers[span.first : span.stop]:
            hidden = layer.forward(hidden)
        return hidden

    # ---- ends ----

    def enter(self, batch: Samples) -> Floats:
        """The hidden states before the first block."""
        with torch.no_grad(), self._computing():
            return _array(self.outline.task_blocks.enter(self._on_device(batch)))

    def leave(self, hidden: Floats, batch: Samples) -> Left:
        """The losses after the last block and the gradient of the hidden states; gradients of the ends are added up."""
        inputs = self._tensor(hidden).requires_grad_()
        losses = self._losses(inputs, batch).sum()
        losses.backward()  # type: ignore[no-untyped-call]
        assert inputs.grad is not None
        return Left(losses.item(), _array(inputs.grad))

    def loss(self, hidden: Floats, batch: Samples) -> float:
        """The sum of the losses after the last block."""
        with torch.no_grad():
            return self._losses(self._tensor(hidden), batch).sum().item()

    def _losses(self, hidden: Tensor, batch: Samples) -> Tensor:
        with task_errors(self.outline.task, "blocks"), self._computing():
            losses = self.outline.task_blocks.leave(hidden, self._on_device(batch))
            if losses.shape != (length(batch),):
                raise ValueError("leave() must give one loss for each sample")
            return losses.float()

    def enter_backward(self, batch: Samples, gradient: Floats) -> None:
        """Add up the gradients of what comes before the first block."""
        with self._computing():
            outputs = self.outline.task_blocks.enter(self._on_device(batch))
        torch.autograd.backward(outputs, self._tensor(gradient).to(outputs.dtype))

    # ---- helpers ----

    @contextlib.contextmanager
    def _computing(self) -> Iterator[None]:
        task = self.outline.task
        with task_errors(task, "blocks"), autocast(self.outline.device, task.bfloat16_on_cpu):
            yield

    def _tensor(self, values: Floats) -> Tensor:
        return torch.from_numpy(values).to(self.outline.device)

    def _on_device(self, batch: Samples) -> dict[str, Tensor]:
        return {name: column.to(self.outline.device) for name, column in batch.items()}


def _array(tensor: Tensor) -> Floats:
    found: Floats = tensor.detach().float().cpu().numpy()
    return found
