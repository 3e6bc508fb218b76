"""Tasks of one name, one version and one layout whose models compute different things."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from p2pnode.tasks.digits import Digits, Scale
from p2pnode.tasks.task import Samples


class Founded(Digits):
    name = "other-digits"
    _activation: type[nn.Module] = nn.ReLU
    _base = 0  # seed of the frozen layer
    _smoothing = 0.0

    def model(self) -> nn.Module:
        frozen = nn.Linear(64, 64, bias=False)
        frozen.weight.data = torch.eye(64) + 0.1 * torch.randn(
            64, 64, generator=torch.Generator().manual_seed(self._base)
        )
        frozen.weight.requires_grad = False
        return nn.Sequential(Scale(16.0), frozen, nn.Linear(64, 32), self._activation(), nn.Linear(32, 10))

    def losses(self, model: nn.Module, batch: Samples) -> Tensor:
        outputs = model(batch["x"])
        return functional.cross_entropy(outputs, batch["y"], reduction="none", label_smoothing=self._smoothing)


class Activation(Founded):
    _activation = nn.Tanh


class Probe(Founded):
    """The same model, with other inputs to be compared on."""

    def probe(self) -> Samples:
        return {name: column.flip(0) for name, column in super().probe().items()}


class Base(Founded):
    _base = 5


class Later(Founded):
    """Differs only where weights have grown: with the weights of the manifest's sketch it computes the same."""

    _activation = type("Clipped", (nn.Hardtanh,), {"__init__": lambda self: nn.Hardtanh.__init__(self, 0.0, 3.0)})


class Loss(Founded):
    _smoothing = 0.3
