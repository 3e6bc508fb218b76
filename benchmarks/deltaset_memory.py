"""Memory of a training node: what its arrays hold, and how much the process grows.

    python -m benchmarks.deltaset_memory [--json] [--quick] [WIDTH [LAYERS]]

Bytes per parameter: `counted` over all arrays that stay (a row each), `resident` and `peak` as the process grows
between rounds and at most. Samples are few and short, so that activations hardly count.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from benchmarks.common import Figures, Report, run
from p2pnode.compression.weights import to_units
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.policy import PolicySetup, RoundFacts
from p2pnode.tasks.gpt import Gpt
from p2pnode.tasks.task import Option
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.ids import Identity

ROUNDS = 3
SHORT: dict[str, Option] = {"batch_size": 1, "context": 8, "test_windows": 1, "algorithm": "adamw"}


def learning(source: str, width: int, layers: int) -> dict[str, Any]:
    """Everything a node keeps of a model."""
    task = Gpt(**SHORT, width=width, layers=layers, source=source)
    model_host = ModelHost(task)
    layout, lineage = model_host.layout.hash, "00" * 32
    policy = DeltaSetPolicy(
        PolicySetup(to_units(model_host.genesis), Identity(bytes(32)), lineage, "main", layout, {}, 0)
    )
    return {"host": model_host, "trainer": Trainer(model_host), "policy": policy}


def train(kept: dict[str, Any]) -> None:
    """Rounds as `Learning` does them; between them the last round's weights are gone."""
    policy, trainer = kept["policy"], kept["trainer"]
    for _ in range(ROUNDS):
        begun = policy.start()
        result = trainer.steps(begun, 1)
        policy.publish(policy.record(begun, result.weights, RoundFacts(1, result.loss, 1, 2)))
        del begun, result
        policy.merge()


def arrays(name: str, value: Any, seen: set[int]) -> Iterator[tuple[str, int, int]]:
    """(name, address, bytes) of all arrays below a value."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield name, value.untyped_storage().data_ptr(), value.untyped_storage().nbytes()
    elif isinstance(value, np.ndarray):
        base = value
        while isinstance(base.base, np.ndarray):
            base = base.base
        yield name, base.ctypes.data, base.nbytes
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from arrays(f"{name}.{key}", item, seen)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from arrays(name, item, seen)
    elif hasattr(value, "__dict__") and type(value).__module__.startswith("p2pnode"):
        for key, item in vars(value).items():
            yield from arrays(f"{name}.{key.strip('_')}", item, seen)


def table(kept: dict[str, Any], size: int) -> dict[str, float]:
    """Bytes per parameter of each array that grows with the model, each counted once."""
    rows: dict[str, float] = {}
    places: set[int] = set()
    for name, place, amount in arrays("", kept, set()):
        if amount >= size and place not in places:
            places.add(place)
            rows[name.strip(".")] = round(amount / size, 2)
    return rows


def resident() -> int:
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def measure(arguments: argparse.Namespace) -> Report:
    """Bytes per parameter, counted and as the process grows."""
    width, layers = arguments.width, arguments.layers or (2 if arguments.quick else 7)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="p2pnode-bench-") as directory:
        file = Path(directory) / "text"
        file.write_bytes(bytes(range(32, 127)) * 20)
        small = learning(str(file), 32, 1)
        train(small)
        del small
        before = resident()
        kept = learning(str(file), width, layers)
        train(kept)
        size = kept["host"].layout.size
        growth = resident() - before
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    rows = table(kept, size)
    figures: Figures = {"parameters": size, "counted": round(sum(rows.values()), 2)}
    figures |= {"resident": growth / size, "peak": peak / size}
    return Report(figures, [{"array": name, "bytes_per_parameter": amount} for name, amount in rows.items()])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("width", type=int, nargs="?", default=256, help="of the language model")
    parser.add_argument("layers", type=int, nargs="?", default=0)
    run("deltaset_memory", measure, parser)
