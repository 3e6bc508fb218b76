"""Lightning's Trainer with one callback. Run it twice, the second time with the invite it prints:

    python examples/lightning_module.py
    python examples/lightning_module.py CODE

Each process has points of two of three spirals. `alone` instead of a code trains without p2pnode.
"""

from __future__ import annotations

import math
import os
import sys
import time
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from p2pnode.integrations import LightningCallback

CODE = sys.argv[1] if len(sys.argv) > 1 else None
SECONDS = float(os.environ.get("EXAMPLE_SECONDS", "60"))
GOAL = 0.6  # a test loss that no process reaches alone
LINGER = 5.0  # seconds that a process goes on once the goal is reached, so that the other one reaches it too


def spirals(seed: int, kept: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Points of some of three spirals."""
    draw = torch.Generator().manual_seed(seed)
    t, y = torch.rand(2000, generator=draw), torch.randint(3, (2000,), generator=draw)
    angle = 2.5 * t + y * 2 * torch.pi / 3
    x = 3 * torch.stack([t * angle.cos(), t * angle.sin()], 1)
    here = torch.isin(y, torch.tensor(kept))
    return x[here], y[here]


class Spirals(lightning.LightningModule):
    """A small classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 3))
        self.end = math.inf

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = batch
        return nn.functional.cross_entropy(self.layers(x), y)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        swarm = together.swarm
        if swarm is not None and swarm.evaluation is not None and swarm.evaluation.loss < GOAL and swarm.peers():
            self.end = min(self.end, time.monotonic() + LINGER)
        self.trainer.should_stop = time.monotonic() > self.end

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.005)


def test_loss(module: Any) -> tuple[float, float]:
    """The loss and the accuracy on points of all spirals."""
    x, y = spirals(1, (0, 1, 2))
    with torch.no_grad():
        outputs = module.layers(x)
        return float(nn.functional.cross_entropy(outputs, y)), float((outputs.argmax(1) == y).float().mean())


data = TensorDataset(*spirals(0, (0, 1) if CODE in (None, "alone") else (1, 2)))
module, together = Spirals(), LightningCallback(CODE, evaluate=test_loss)
trainer = lightning.Trainer(
    max_epochs=-1,
    max_time={"seconds": SECONDS},  # type: ignore[dict-item]
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[] if CODE == "alone" else [together],
)
trainer.fit(module, DataLoader(data, batch_size=32, shuffle=True))
found = None if together.swarm is None else together.swarm.evaluation
print(f"test loss {test_loss(module)[0] if found is None else found.loss:.3f}")
