"""A training loop of your own, with two lines of p2pnode. Run it twice, the second time with the invite it prints:

    python examples/own_loop.py
    python examples/own_loop.py CODE

Each process has the digits of other classes. Alone it cannot learn those that it lacks; together both learn all. With
`alone` instead of a code it trains without p2pnode, for comparison.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
from torch import nn

import p2pnode
from p2pnode.tasks.digits import Digits

CODE = sys.argv[1] if len(sys.argv) > 1 else None
SECONDS = float(os.environ.get("EXAMPLE_SECONDS", "60"))
GOAL = 0.8  # a test loss that no process reaches alone
LINGER = 15.0  # seconds that a process goes on once the goal is reached, so that the other one reaches it too

data, test = Digits().data(), Digits().test_data()
x, y = data["x"].float() / 16, data["y"]
here = y < 7 if CODE in (None, "alone") else y > 2  # each process lacks three of the ten classes
x, y = x[here], y[here]

model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)


def test_loss(model: nn.Module) -> tuple[float, float]:
    """The loss and the accuracy on digits of all classes."""
    with torch.no_grad():
        outputs = model(test["x"].float() / 16)
        loss = nn.functional.cross_entropy(outputs, test["y"])
        return loss.item(), (outputs.argmax(1) == test["y"]).float().mean().item()


def train(swarm: Any = None) -> None:
    """The loop, as it was before p2pnode. This one ends when the shared model is good enough."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if swarm is not None and swarm.evaluation is not None and swarm.evaluation.loss < GOAL and swarm.peers():
            end = min(end, time.monotonic() + LINGER)
        rows = torch.randint(len(x), (32,))
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.002)  # as if the model were larger


if CODE == "alone":
    train()
    print("test loss {:.3f}, accuracy {:.1%}".format(*test_loss(model)))
else:
    with p2pnode.join(model, optimizer, CODE, evaluate=test_loss) as swarm:
        train(swarm)
    assert swarm.evaluation is not None
    print(f"test loss {swarm.evaluation.loss:.3f}, accuracy {swarm.evaluation.accuracy:.1%}")
