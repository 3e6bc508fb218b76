"""What it costs that samples are read by index or streamed, compared with tensors in memory; and how 100 GB start.

    python -m benchmarks.data_kinds [--json] [--quick]

The same model trains on the same digits, which are small rows (64 bytes), in turn, in one thread: as tensors in memory,
from a map-style data set (row by row, many rows as a list, many rows as columns) and from a stream. Microseconds a step
of 32 rows, processor time, the faster half of the rounds; `overhead` is what a step takes longer than with tensors.
`found_s`, `train_s`, `memory_mb`: seconds to a founded run (imports left out) and to the end of 15 steps, and memory
taken by then, for a sparse file of 100 GB of tokens and for one of 10 MB.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset

from benchmarks.common import Figures, Report, Row, progress_row, run
from p2pnode.tasks.digits import Digits
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer

SAMPLES = Digits().data()
STEPS = 50
SIZES = {"100gb": 100 << 30, "10mb": 10 << 20}
FOUND = """
import resource, sys, time
from pathlib import Path
import torch
from p2pnode.config.options import TrainOptions
from p2pnode.jobs.train.binding import make_plan, open_model_host
from p2pnode.training.trainer import Trainer

torch.set_num_threads(1)
options = TrainOptions(task=sys.argv[1], data=Path(sys.argv[2]))
before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
host = open_model_host(options, 1)
make_plan(host, options, 1)
founded = time.perf_counter() - begun
trainer = Trainer(host, seed=1)
trainer.steps(host.genesis, 15)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(founded, time.perf_counter() - begun, (peak - before) / 1024)
"""
TASK = """
from torch import nn
from p2pnode import Task, Tokens

class Large(Task):
    source = ""

    def model(self): return nn.Sequential(nn.Embedding(256, 16), nn.Linear(16, 256))
    def data(self): return Tokens(self.source, 128, part=(0, 0.99))
    def test_data(self): return Tokens(self.source, 128, part=(0.99, 1))
"""


class Rows(Dataset[Any]):
    """Digits row by row."""

    def __len__(self) -> int:
        return len(SAMPLES["y"])

    def __getitem__(self, row: int) -> Any:
        return SAMPLES["x"][row], SAMPLES["y"][row]


class Lists(Rows):
    """Many digits at once, as a list."""

    def __getitems__(self, rows: list[int]) -> Any:
        return [self[row] for row in rows]


class Columns(Rows):
    """Many digits at once, as columns."""

    def __getitems__(self, rows: list[int]) -> Any:
        return {name: column[rows] for name, column in SAMPLES.items()}


class Passing(IterableDataset[Any]):
    """Digits one after the other."""

    def __iter__(self) -> Any:
        for row in torch.randperm(len(SAMPLES["y"])).tolist():
            yield SAMPLES["x"][row], SAMPLES["y"][row]


KINDS: dict[str, Any] = {"memory": SAMPLES, "rows": Rows(), "lists": Lists(), "columns": Columns(), "stream": Passing()}


class Kind(Digits):
    """Digits in one of the kinds of data."""

    name = "kind"
    kind = "memory"

    def data(self) -> Any:
        return KINDS[self.kind]


class Loop:
    """Trains on one kind of data."""

    def __init__(self, kind: str) -> None:
        self._trainer = Trainer(ModelHost(Kind(kind=kind), seed=1), seed=1)
        self._weights = self._trainer.model_host.genesis

    def steps(self, count: int) -> float:
        """Processor seconds of a step."""
        begun = time.thread_time()
        self._weights = self._trainer.steps(self._weights, count).weights
        return (time.thread_time() - begun) / count


def small_rows(rounds: int) -> list[Row]:
    loops = {kind: Loop(kind) for kind in KINDS}
    for loop in loops.values():
        loop.steps(STEPS)  # warms up
    times = [{kind: loop.steps(STEPS) for kind, loop in loops.items()} for _ in range(rounds)]
    best = {kind: mean(sorted(each[kind] for each in times)[: max(1, rounds // 2)]) for kind in KINDS}
    found: list[Row] = [
        {"kind": kind, "step_us": 1e6 * best[kind], "overhead": best[kind] / best["memory"] - 1} for kind in KINDS
    ]
    for row in found:
        progress_row(row)
    return found


def large_file() -> Figures:
    found: Figures = {}
    with TemporaryDirectory() as folder:
        task, file = Path(folder) / "large.py", Path(folder) / "train.bin"
        task.write_text(TASK)
        for name, size in SIZES.items():
            with file.open("wb") as tokens:
                tokens.truncate(size)
            command = [sys.executable, "-c", FOUND, str(task), str(file)]
            words = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
            founded, trained, memory = (float(word) for word in words)
            found |= {f"found_s_{name}": founded, f"train_s_{name}": trained, f"memory_mb_{name}": memory}
    return found


def measure(arguments: argparse.Namespace) -> Report:
    torch.set_num_threads(1)
    return Report(large_file(), small_rows(6 if arguments.quick else 30))


if __name__ == "__main__":
    run("data_kinds", measure)
