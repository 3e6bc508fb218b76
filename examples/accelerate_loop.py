"""A loop with Accelerate: `p2pnode.join` takes what `prepare` returned. Run it twice, then with the invite it prints:

    python examples/accelerate_loop.py
    python examples/accelerate_loop.py CODE

Each process has points of two of three blobs. `alone` instead of a code trains without p2pnode.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import p2pnode
from p2pnode.tasks.task import Evaluation

CODE = sys.argv[1] if len(sys.argv) > 1 else None
SECONDS = float(os.environ.get("EXAMPLE_SECONDS", "60"))
GOAL = 0.5  # a test loss that no process reaches alone
LINGER = 15.0  # seconds that a process goes on once the goal is reached, so that the other one reaches it too


def blobs(seed: int, kept: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Points around some of three corners."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (2000,), generator=draw)
    x = torch.tensor([[0.0, 2.0], [2.0, 0.0], [-2.0, -1.0]])[y] + 0.7 * torch.randn(2000, 2, generator=draw)
    here = torch.isin(y, torch.tensor(kept))
    return x[here], y[here]


def test_loss(model: nn.Module) -> Evaluation:
    """The loss and the accuracy on points of all kinds."""
    x, y = blobs(1, (0, 1, 2))
    with torch.no_grad():
        outputs = model(x)
        right = float((outputs.argmax(1) == y).float().mean())
        return Evaluation(float(nn.functional.cross_entropy(outputs, y)), right, len(y))


accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.AdamW(model.parameters(), 0.002)
loader = DataLoader(TensorDataset(*blobs(0, (0, 1) if CODE in (None, "alone") else (1, 2))), 32, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

joined = None if CODE == "alone" else p2pnode.join(model, optimizer, CODE, evaluate=test_loss)
with joined or contextlib.nullcontext():
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if joined is not None and joined.evaluation is not None and joined.evaluation.loss < GOAL and joined.peers():
            end = min(end, time.monotonic() + LINGER)
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.cross_entropy(model(x), y))
                optimizer.step()
                optimizer.zero_grad()
            time.sleep(0.001)  # as if the model were larger
found = test_loss(model) if joined is None or joined.evaluation is None else joined.evaluation
print(f"test loss {found.loss:.3f}, accuracy {found.accuracy:.1%}")
