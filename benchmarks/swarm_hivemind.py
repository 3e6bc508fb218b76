"""A peer that trains with hivemind.Optimizer: the same model, samples and learning rate as a node of benchmarks.swarm.

    python -m benchmarks.swarm_hivemind '{"task": …, "status": FILE, …}'

Local updates, parameters averaged in the background as fp16 every `target_batch_size` samples of all peers together:
what hivemind has for slow links. It gets the number of steps four times a second. Writes its state into the file
`status` now and then.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import hivemind
import torch
from hivemind.compression import Float16Compression

from p2pnode.config.split import SplitPart, parse_split
from p2pnode.jobs.train.prepare import fixed_rows
from p2pnode.shards.rows import listed
from p2pnode.tasks.find import load_task
from p2pnode.tasks.optimizers import AdamW, Sgd
from p2pnode.tasks.task import Task
from p2pnode.training.batches import Batches
from p2pnode.training.evaluation import FEW, SHARE, next_count
from p2pnode.training.host import ModelHost, build_model

SEED = 7  # of the first weights, the same for all
REPORT_EVERY = (
    0.25  # seconds: each step() of hivemind goes into the DHT, 0.4 MB/s for small models if called every time
)


def torch_optimizer(task: Task, parameters: Any) -> torch.optim.Optimizer:
    """torch's own of the kind the task uses."""
    own = task.optimizer([])
    if isinstance(own, AdamW):
        return torch.optim.AdamW(parameters, own.lr, own.betas, own.eps, own.weight_decay)
    assert isinstance(own, Sgd)
    return torch.optim.SGD(parameters, own.lr, own.momentum, weight_decay=own.weight_decay, nesterov=own.nesterov)


def optimizer(task: Task, model: torch.nn.Module, words: dict[str, Any]) -> hivemind.Optimizer:
    dht = hivemind.DHT(initial_peers=words["initial_peers"], host_maddrs=[words["listen"]], start=True)
    Path(words["status"]).with_suffix(".address").write_text(str(dht.get_visible_maddrs()[0]))
    return hivemind.Optimizer(
        dht=dht,
        run_id="swarm",
        params=list(model.parameters()),
        optimizer=lambda parameters: torch_optimizer(task, parameters),
        scheduler=None,
        batch_size_per_step=task.batch_size,
        target_batch_size=words["target_batch_size"],
        use_local_updates=True,
        matchmaking_time=3.0,
        averaging_timeout=60.0,
        state_averaging_compression=Float16Compression(),
        load_state_compression=Float16Compression(),
    )


def main(words: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    task = load_task(words["task"], words["options"], words["source"])
    model_host = ModelHost(task)
    model = build_model(task, SEED)
    part = SplitPart(words["part"], words["parts"])
    rows = torch.from_numpy(listed(fixed_rows(model_host, parse_split(words["split"]), part)))
    batches = Batches(rows, task.batch_size, words["part"])
    averaged = optimizer(task, model, words)
    inner = averaged.state_averager.optimizer  # torch's own, over the model's parameters
    evaluate_at, reported_at, busy, steps, unreported, count = 0.0, 0.0, 0.0, 0, 0, FEW
    while True:
        begun = time.perf_counter()
        model.train()
        task.loss(model, model_host.batch(batches.next())).backward()  # type: ignore[no-untyped-call]
        unreported += task.batch_size
        if time.monotonic() - reported_at >= REPORT_EVERY:
            busy += time.perf_counter() - begun
            averaged.step(batch_size=unreported)
            averaged.zero_grad()
            reported_at, unreported = time.monotonic(), 0
        else:
            inner.step()
            inner.zero_grad()
            busy += time.perf_counter() - begun
        steps += 1
        if time.monotonic() >= evaluate_at:
            looked = time.monotonic()
            model.eval()
            with torch.no_grad():
                found = task.evaluate(model, next(model_host.test.spread(count).pieces(count)))
            state = {"loss": found.loss, "accuracy": found.accuracy, "epoch": averaged.local_epoch}
            unfinished = Path(words["status"] + ".part")
            unfinished.write_text(json.dumps({**state, "steps": steps, "busy": busy}))
            unfinished.replace(words["status"])
            now = time.monotonic()
            every, took = words["evaluate_every"], now - looked
            evaluate_at = now + max(every, took / SHARE)  # as a node paces itself
            count = next_count(count, len(model_host.test), took, every)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
