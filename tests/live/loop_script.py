"""A user's script with a training loop, for the live tests: its arguments say what it does."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import p2pnode


def blobs(seed: int, kept: set[int]) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (600,), generator=draw)
    x = torch.tensor([[0.0, 2.0], [2.0, 0.0], [-2.0, -1.0]])[y] + 0.5 * torch.randn(600, 2, generator=draw)
    here = torch.tensor([int(label) in kept for label in y])
    return x[here], y[here]


def accuracy(model: nn.Module) -> float:
    x, y = blobs(1, {0, 1, 2})
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--invite")
    parser.add_argument("--data-dir")
    parser.add_argument("--kept", default="0,1")
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--stop", type=Path, help="train until this file exists")
    parser.add_argument("--fail", action="store_true", help="raise an error of the user's own")
    parser.add_argument("--plain", action="store_true", help="no with block, and no leave")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--private", action="store_true")
    parser.add_argument("--share", action="store_true", help="shards of the data may travel")
    given = parser.parse_args()
    data: Any = TensorDataset(*blobs(0, set(map(int, given.kept.split(",")))))
    data.classes = 3
    model = nn.Sequential(nn.Linear(2, given.hidden), nn.ReLU(), nn.Linear(given.hidden, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    loader = DataLoader(data, 32, shuffle=True, num_workers=given.workers, persistent_workers=bool(given.workers))
    swarm = p2pnode.join(
        model, optimizer, given.invite, data_dir=given.data_dir, evaluate=accuracy, private=given.private,
        listen="/ip4/127.0.0.1/tcp/0", no_lan=True, round_seconds=None if given.invite else 0.5,
        share=data if given.share else None,
    )  # fmt: skip

    def train() -> None:
        while not given.stop.exists():
            for x, y in loader:
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(0.005)
            samples = len(swarm.data) - swarm.data.own if given.share else 0
            print(f"accuracy {accuracy(model):.3f} steps {swarm.steps} {swarm.state} received {samples}", flush=True)
            if given.fail and swarm.state == "joined":
                raise KeyError("the user's own")

    if given.plain:
        train()
    else:
        with swarm:
            train()
            swarm.wait(60)
            print(f"peers {len(swarm.peers())}", flush=True)
        print(f"left; accuracy {accuracy(model):.3f}", flush=True)
        sys.exit(0)
