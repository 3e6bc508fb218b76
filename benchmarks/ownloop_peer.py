"""A peer of benchmarks.ownloop: one training loop, as it is, with p2pnode.join, hivemind.Optimizer, or torchft.

    python -m benchmarks.ownloop_peer '{"how": "p2pnode", "status": FILE, …}'

The loops are functions of their own, so that the benchmark can count the lines in which they differ.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

EVALUATE_EVERY = 2.0  # seconds
LOOK_FOR_INVITE = 0.1  # seconds


def loop_alone(model: Any, optimizer: Any, batches: Any, loss_of: Any, words: Any, looked: Any) -> None:
    """The user's loop."""
    for batch in batches:
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        looked(model)


def loop_p2pnode(model: Any, optimizer: Any, batches: Any, loss_of: Any, words: Any, looked: Any) -> None:
    """The same with p2pnode."""
    import p2pnode

    with p2pnode.join(model, optimizer, words["invite"], **words["settings"]) as swarm:
        looked.swarm = swarm
        for batch in batches:
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            looked(model)


def loop_hivemind(model: Any, optimizer: Any, batches: Any, loss_of: Any, words: Any, looked: Any) -> None:
    """The same with hivemind: local updates, parameters averaged in the background as fp16, which suits slow links."""
    import hivemind
    from hivemind.compression import Float16Compression

    dht = hivemind.DHT(initial_peers=words["initial_peers"], host_maddrs=[words["listen"]], start=True)
    Path(words["status"]).with_suffix(".address").write_text(str(dht.get_visible_maddrs()[0]))
    optimizer = hivemind.Optimizer(
        dht=dht,
        run_id="ownloop",
        params=list(model.parameters()),
        optimizer=lambda parameters: torch.optim.SGD(parameters, words["rate"], 0.9),
        scheduler=None,
        batch_size_per_step=words["batch_size"],
        target_batch_size=words["target_batch_size"],
        use_local_updates=True,
        matchmaking_time=3.0,
        averaging_timeout=60.0,
        state_averaging_compression=Float16Compression(),
        load_state_compression=Float16Compression(),
    )
    for batch in batches:
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        looked(model)


def loop_torchft(model: Any, optimizer: Any, batches: Any, loss_of: Any, words: Any, looked: Any) -> None:
    """The same with torchft: local updates, parameters averaged every so many steps. Its lighthouse is in peer 0."""
    from datetime import timedelta

    import torch.distributed as dist
    from torchft import Manager, ProcessGroupGloo
    from torchft.local_sgd import LocalSGD

    store = dist.TCPStore(words["host"], 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=60)),
        min_replica_size=words["parts"],
        use_async_quorum=False,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        load_state_dict=lambda state: (
            model.load_state_dict(state["model"]),
            optimizer.load_state_dict(state["optimizer"]),
        ),
        replica_id=f"peer{words['part']}",
        store_addr=words["host"],
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=words["lighthouse"],
        hostname=words["host"],
    )
    with LocalSGD(manager, model, optimizer, sync_every=words["sync_every"]):
        for batch in batches:
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            looked(model)


LOOPS = {"alone": loop_alone, "p2pnode": loop_p2pnode, "hivemind": loop_hivemind, "torchft": loop_torchft}


class Look:
    """Writes how the model does into a file now and then."""

    def __init__(self, test: tuple[torch.Tensor, torch.Tensor], status: Path) -> None:
        self.swarm: Any = None
        self.steps = 0
        self._test = test
        self._status = status
        self._next = 0.0

    def accuracy(self, model: nn.Module) -> float:
        model.eval()
        with torch.no_grad():
            found = float((model(self._test[0]).argmax(1) == self._test[1]).float().mean())
        model.train()
        return found

    def __call__(self, model: nn.Module) -> None:
        self.steps += 1
        now = time.monotonic()
        if now < self._next:
            return
        facts: dict[str, Any] = {"steps": self.steps}
        if self.swarm is None:
            facts["accuracy"] = self.accuracy(model)
        else:
            status = self.swarm.status()
            job = None if status is None else status.jobs.get("main")
            shared = None if job is None else job.state.training.accuracy
            facts |= {"accuracy": shared or 0.0, "invite": self.swarm.invite}
        unfinished = self._status.with_suffix(".part")
        unfinished.write_text(json.dumps(facts))
        unfinished.replace(self._status)
        waits = self.swarm is not None and not facts["invite"]
        self._next = time.monotonic() + (LOOK_FOR_INVITE if waits else EVALUATE_EVERY)


def data_of(words: dict[str, Any]) -> tuple[Any, Any, Any]:
    """The task's model, the batches of this peer's part of the data, and the test data."""
    from p2pnode.config.split import SplitPart, parse_split
    from p2pnode.jobs.train.prepare import fixed_rows
    from p2pnode.shards.rows import listed
    from p2pnode.tasks.find import load_task
    from p2pnode.training.host import ModelHost, build_model

    task = load_task(words["task"], {}, None)
    host = ModelHost(task)
    part = SplitPart(words["part"], words["parts"])
    rows = torch.from_numpy(listed(fixed_rows(host, parse_split(words["split"]), part)))
    data, test = task.data(), task.test_data()
    x, y = data["x"][rows], data["y"][rows]

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        draw = torch.Generator().manual_seed(words["part"])
        while True:
            chosen = torch.randint(len(x), (words["batch_size"],), generator=draw)
            yield x[chosen], y[chosen]

    few = torch.linspace(0, len(test["y"]) - 1, 2000).long()
    return build_model(task, 7), batches(), (test["x"][few], test["y"][few])


def loss_of(model: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def main(words: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    model, batches, test = data_of(words)
    optimizer = torch.optim.SGD(model.parameters(), words["rate"], 0.9)
    look = Look(test, Path(words["status"]))
    if words["how"] == "p2pnode":
        words["settings"]["evaluate"] = look.accuracy
    if words["how"] == "torchft":  # by default its members are reached at the address of the machine's name
        socket.gethostname = lambda: str(words["host"])
        os.environ["GLOO_SOCKET_IFNAME"] = words["device"]
    if words["how"] == "torchft" and not words["lighthouse"]:
        from torchft.coordination import LighthouseServer

        house = LighthouseServer(bind=f"{words['host']}:0", min_replicas=words["parts"], join_timeout_ms=60_000)
        words["lighthouse"] = f"http://{words['host']}:{house.address().rpartition(':')[2]}"
        Path(words["status"]).with_suffix(".address").write_text(words["lighthouse"])
    LOOPS[words["how"]](model, optimizer, batches, loss_of, words, look)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
