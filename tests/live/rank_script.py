"""A loop under torchrun, for a live test: DistributedDataParallel over two ranks; rank 0 takes part in a run."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import p2pnode
from tests.live.loop_script import accuracy, blobs

if __name__ == "__main__":
    dist.init_process_group("gloo")
    rank, data_dir, invite, result = dist.get_rank(), sys.argv[1], sys.argv[2], Path(sys.argv[3])
    torch.manual_seed(rank)
    x, y = blobs(rank, {1, 2})
    inner = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 3))
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    apart = 0.0
    with p2pnode.join(
        model, optimizer, invite, data_dir=data_dir, listen="/ip4/127.0.0.1/tcp/0", no_lan=True, quiet=True
    ) as swarm:
        assert swarm.wait(120)
        good = torch.zeros(1)
        while not good:
            for _ in range(40):
                rows = torch.randint(len(x), (16,))
                nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(0.002)
                mine = torch.cat([part.detach().reshape(-1) for part in inner.parameters()])
                other = mine.clone()
                dist.broadcast(other, 0)
                apart = max(apart, float((mine - other).abs().max()))
            good = torch.tensor([float(accuracy(inner) > 0.75)])  # it learns the class that only the partner has
            dist.broadcast(good, 0)
        steps = torch.tensor([swarm.steps])
        theirs = steps.clone()
        dist.broadcast(theirs, 0)
        apart = max(apart, float((steps - theirs).abs()) if abs(int(steps - theirs)) > 50 else 0.0)
    (result / f"rank{rank}").write_text(f"{apart} {len(swarm.peers())} {swarm.invite != ''}")
    dist.barrier()  # a rank that ends while another still leaves would break its connections
    dist.destroy_process_group()
