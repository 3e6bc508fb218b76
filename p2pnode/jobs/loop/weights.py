"""The trainable weights of a user's model as one vector: read with one copy, changed in place.

Tied weights are there once, frozen parameters are left out, and so are those that no optimizer holds. Changes are made
in place only: optimizers, compiled models and whoever else holds a parameter go on with the same tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ...compression.weights import MAX_SIZE, Floats, WeightLayout
from ...wire.errors import UsageError

Buffers = Literal["own", "mean"]  # floating-point buffers stay each node's own, or are shared like weights
_WRAPPERS = ("module", "_orig_mod")  # where DistributedDataParallel and torch.compile keep the model


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own model inside what torch wraps around it."""
    while type(model).__name__ in ("DistributedDataParallel", "DataParallel", "OptimizedModule"):
        inner = next((found for name in _WRAPPERS if isinstance(found := getattr(model, name, None), nn.Module)), None)
        if inner is None:
            break
        model = inner
    return model


def plain_optimizer(optimizer: Any) -> torch.optim.Optimizer:
    """The torch optimizer inside what Accelerate or Lightning wrap around it; UsageError when there is none."""
    for name in ("optimizer", "_optimizer"):
        inner = getattr(optimizer, name, None)
        if isinstance(inner, torch.optim.Optimizer):
            return plain_optimizer(inner)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"p2pnode.join needs a torch optimizer, or a list of them, not {type(optimizer).__name__}")
    return optimizer


def shared_tensors(
    model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], buffers: Buffers = "own"
) -> dict[str, Tensor]:
    """What members share of a model, by name: trained parameters, each tied one once; buffers too where they are meant.

    UsageError when the optimizers do not hold them, or a parameter cannot be shared.
    """
    held = {id(part) for optimizer in optimizers for group in optimizer.param_groups for part in group["params"]}
    trainable = {name: part for name, part in model.named_parameters() if part.requires_grad and part.numel()}
    if not trainable:
        raise UsageError("the model has no trainable parameters; unfreeze some (requires_grad) before p2pnode.join")
    found = {name: part for name, part in trainable.items() if id(part) in held}
    if not found:
        raise UsageError(
            "the optimizer holds none of the model's parameters; make it from this model's parameters, after the model "
            "was moved or replaced, and give join both"
        )
    tensors: dict[str, Tensor] = _without_tied(found)
    if buffers == "mean":
        kept = model.state_dict(keep_vars=True).keys()
        named = model.named_buffers()
        tensors |= {name: part for name, part in named if part.is_floating_point() and part.numel() and name in kept}
    for name, part in tensors.items():
        if hasattr(part, "placements") or not part.is_floating_point():
            kind = "is sharded over processes" if hasattr(part, "placements") else f"has the type {part.dtype}"
            raise UsageError(f"parameter {name} {kind}, which p2pnode.join cannot share; use whole floating-point ones")
    size = sum(part.numel() for part in tensors.values())
    if size > MAX_SIZE:
        raise UsageError(f"the model has {size:,} trainable parameters; at most {MAX_SIZE:,} can be shared")
    return tensors


def _without_tied(parts: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """The parameters without those that share the memory of one before them; UsageError when they do so in part."""
    seen: dict[tuple[str, int], str] = {}
    found: dict[str, Tensor] = {}
    for name, part in parts.items():
        first = seen.setdefault((str(part.device), part.data_ptr()), name)
        if first == name:
            found[name] = part
        elif parts[first].shape != part.shape:
            raise UsageError(f"parameters {first} and {name} share memory but not their shape; tie whole parameters")
    return found


def layout_of_tensors(tensors: Mapping[str, Tensor]) -> WeightLayout:
    return WeightLayout(tuple((name, tuple(part.shape)) for name, part in tensors.items()))


class ModelWeights:
    """The shared tensors of one model in training (handover.LoopWeights)."""

    def __init__(
        self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], tensors: Mapping[str, Tensor]
    ) -> None:
        self.layout = layout_of_tensors(tensors)
        self._model = model
        self._optimizers = optimizers
        self._names = list(tensors)
        self.tensors = list(tensors.values())
        self._simple = len({(part.dtype, part.device) for part in self.tensors}) == 1
        self._variances = [part for name, part in tensors.items() if name.endswith("running_var")]

    def read(self) -> Floats:
        vector = np.empty(self.layout.size, np.float32)
        with torch.no_grad():
            views = split_vector(torch.from_numpy(vector), self.tensors)
            if self._simple and self.tensors[0].device.type == "cpu":
                torch._foreach_copy_(views, self.tensors)
            else:
                for view, part in zip(views, self.tensors, strict=True):
                    view.copy_(part, non_blocking=True)
                if self.tensors[0].is_cuda:
                    torch.cuda.current_stream().synchronize()
        return vector

    def add(self, change: Floats) -> None:
        with torch.no_grad():
            views = self._views(change)
            if self._simple and self.tensors[0].dtype == torch.float32:
                torch._foreach_add_(self.tensors, views)
            else:
                for part, view in zip(self.tensors, views, strict=True):
                    part.copy_(part.float() + view)
            for variance in self._variances:
                variance.clamp_(min=0.0)

    def replace(self, values: Floats, heal: bool) -> None:
        with torch.no_grad():
            for part, view in zip(self.tensors, self._views(values), strict=True):
                part.copy_(view)
            if heal:
                for name, buffer in self._model.named_buffers():
                    if buffer.is_floating_point() and name not in self._names:
                        buffer.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
                heal_optimizers(self._optimizers)

    def check(self) -> None:
        """UsageError when one of the shared tensors is no longer the model's: then nobody trains it any more."""
        now: dict[str, Tensor] = dict(self._model.named_parameters())
        now |= self._model.named_buffers()
        for name, part in zip(self._names, self.tensors, strict=True):
            if now.get(name) is not part:
                raise UsageError(
                    f"parameter {name} was {'replaced' if name in now else 'removed'} after p2pnode.join; change the "
                    "model before joining, or leave() and join again with the new model and its optimizer"
                )

    def _views(self, vector: Floats) -> list[Tensor]:
        whole = torch.from_numpy(vector)
        if self.tensors[0].device.type != "cpu":
            whole = whole.to(self.tensors[0].device)
        return split_vector(whole, self.tensors)


def split_vector(vector: Tensor, like: Iterable[Tensor]) -> list[Tensor]:
    """The parts of a vector in the shapes of the tensors that it is made of."""
    views, start = [], 0
    for part in like:
        views.append(vector[start : start + part.numel()].view(part.shape))
        start += part.numel()
    return views


def heal_optimizers(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Sets what is not finite in the optimizers' states to zero: one bad gradient would spoil all steps to come."""
    for optimizer in optimizers:
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                if isinstance(value, Tensor) and value.is_floating_point():
                    value.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def describe_tensors(tensors: Mapping[str, Tensor]) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """Name, type and shape of each, as plans compare them."""
    return tuple((name, str(part.dtype).removeprefix("torch."), tuple(part.shape)) for name, part in tensors.items())
