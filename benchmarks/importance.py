"""Which coordinates to send: scoring rules and granularities against plain magnitude, at the same bytes.

    python -m benchmarks.importance --json [--quick] [--tasks fashion-mnist,gpt,digits] [--peers 8] [--steps 500]
        [--seeds 1,2,3] [--variants magnitude,influence …]

One row per variant, task and seed: `scoring`, `granularity` and `k_policy` describe the variant; accuracy or loss of
the nodes' read-outs (mean, worst); `gain` over plain magnitude of the same seed (in points of accuracy, or in
thousandths of a nat); mb_per_node (received); entries (coordinates per entry, mean); added_compute (processor time
beyond that of plain magnitude, as a share of the training, for measuring gradients and scoring); look_share (the part
of it that measures gradients); background (learning of the importance networks, in its own thread in a node, as a share
of the training); looks and lessons (how many).
`fashion-mnist` is a perceptron with SGD, `gpt` a small decoder with AdamW on text that comes with Python, `digits`
a wide perceptron.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import Report, Row, middle, need_fashion_mnist, numbers, progress_row, run, words
from benchmarks.frontier import BEST, FIXED, figures, summary
from benchmarks.virtualpeers import Peer, Plan, VirtualPeers
from p2pnode.compression.selectors.granularity import COARSE, FINE, HYBRID, LEARNED, NAMES, RULE
from p2pnode.compression.selectors.scored import Scored
from p2pnode.config.split import parse_split
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.shards.split import split_rows
from p2pnode.tasks.find import load_task
from p2pnode.training.host import ModelHost
from p2pnode.wire.errors import UsageError


@dataclass(frozen=True)
class Case:
    """A task, and how it is measured."""

    spec: str
    steps: int
    options: dict[str, float | int | str] = field(default_factory=dict)
    source: str | None = None
    split: str = "dirichlet:0.3"
    learning_rate: float | None = None
    mean_steps: float = 10.0
    peers: int = 8
    settings: dict[str, float] = field(default_factory=dict)


def topics() -> str:
    """The largest text that comes with every Python."""
    import pydoc_data.topics

    return str(Path(pydoc_data.topics.__file__))


SMALL: dict[str, float | int | str] = {
    "size": "nano",
    "width": 48,
    "context": 48,
    "test_windows": 128,
    "algorithm": "adamw",
}
CASES = {
    "fashion-mnist": Case("fashion-mnist", 500, learning_rate=BEST, settings={**FIXED, "density": 0.005}),
    "gpt": Case(
        "gpt", 500, SMALL, topics(), "parts", 0.006, 5.0, 4, {**FIXED, "density": 0.02, "beta": 0.95},
    ),
    "digits": Case("digits", 400, {"hidden": 1024}, settings={**FIXED, "density": 0.005}),
}  # fmt: skip

VARIANTS: dict[str, dict[str, float]] = {
    "magnitude": {},
    "influence": {"influence": 1.0},
    "root influence": {"influence": 0.5},
    "importance": {"importance": 1.0},
    "both": {"influence": 1.0, "importance": 1.0},
    "layer scores": {"layer_scores": 0.5},
    "least influence": {"least_influence": 0.3},
    "hybrid": {"granularity": HYBRID},
    "coarse": {"granularity": COARSE},
    "rule": {"granularity": RULE},
    "bandit": {"granularity": LEARNED},
    "adaptive k": {"density": 0.0},
}
QUICK = ("magnitude", "influence", "importance", "both", "hybrid", "coarse", "rule", "bandit")


class Stopwatch:
    """Counts calls of methods and the processor time spent in them, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}

    def watch(self, owner: Any, method: str, name: str) -> None:
        inner: Callable[..., Any] = getattr(owner, method)

        def timed(*arguments: Any, **named: Any) -> Any:
            begun = time.thread_time()
            try:
                return inner(*arguments, **named)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.thread_time() - begun
                self.calls[name] = self.calls.get(name, 0) + 1

        setattr(owner, method, timed)

    def watch_peer(self, peer: Peer) -> None:
        selector = peer.policy.can.selector
        assert selector is not None
        self.watch(peer.trainer, "steps", "train")
        self.watch(peer.trainer, "gradients_at", "look")
        self.watch(peer.policy, "record", "record")
        if selector.gradients is not None:
            self.watch(selector.gradients, "points", "points")
            self.watch(selector.gradients, "note", "note")
        if isinstance(selector, Scored) and selector.importance is not None:
            self.watch(selector.importance, "learn", "learn")

    def of(self, *names: str) -> float:
        return sum(self.seconds.get(name, 0.0) for name in names)


def run_variant(name: str, case: Case, model_host: ModelHost, parts: list[np.ndarray], seed: int, steps: int) -> Row:
    rate = (case.learning_rate or model_host.task.learning_rate) / model_host.task.learning_rate
    plan = Plan(steps, mean_steps=case.mean_steps, rate=rate, seed=seed)
    genesis = ModelHost(model_host.task, seed=seed).genesis
    watch = Stopwatch()
    entries: list[int] = []
    swarm = VirtualPeers(model_host, parts, DeltaSetPolicy, {**FIXED, **case.settings, **VARIANTS[name]}, plan, genesis)
    for peer in swarm.peers:
        watch.watch_peer(peer)
        _count_entries(peer, entries)
    swarm.run()
    nodes = [figures(peer, peer.policy.readout()) for peer in swarm.peers]
    return {
        **_described(name),
        **summary(nodes, "loss" if model_host.task.name == "gpt" else "accuracy"),
        "entries": round(float(np.mean(entries))),
        "train_s": watch.of("train"),
        "record_s": watch.of("record") - watch.of("learn"),
        "look_s": watch.of("look", "points", "note"),
        "learn_s": watch.of("learn"),
        "looks": watch.calls.get("look", 0),
        "lessons": watch.calls.get("learn", 0),
    }


def _count_entries(peer: Peer, entries: list[int]) -> None:
    inner = peer.policy.publish

    def publish(draft: Any) -> bytes:
        entries.append(len(draft.delta))
        return inner(draft)

    peer.policy.publish = publish  # type: ignore[method-assign]


def _described(name: str) -> Row:
    settings = VARIANTS[name]
    factors = [f"{key}^{value:g}" for key, value in settings.items() if key not in ("granularity", "density")]
    granularity = int(settings.get("granularity", FINE))
    return {
        "variant": name,
        "scoring": " × ".join(["magnitude", *factors]),
        "granularity": NAMES[granularity],
        "k_policy": "learned" if granularity == LEARNED else "adaptive" if "density" in settings else "fixed",
    }


def compare(rows: list[Row]) -> None:
    """Compare each row with plain magnitude of its task and seed; all rows train equally long."""
    timed = [dict(row) for row in rows]
    for row in rows:
        alike = [one for one in timed if _same_run(one, row)]
        plain = next(one for one in alike if one["variant"] == "magnitude")
        what, factor = ("loss", -1000.0) if "loss" in row else ("accuracy", 100.0)
        row["gain"] = round(factor * (_number(row, what) - _number(plain, what)), 2)
        train = middle([_number(one, "train_s") for one in alike])
        extra = _number(row, "record_s") - _number(plain, "record_s")
        row["added_compute"] = round((_number(row, "look_s") + extra) / train, 4)
        row["look_share"] = round(_number(row, "look_s") / train, 4)
        row["background"] = round(_number(row, "learn_s") / train, 4)
        for name in ("train_s", "record_s", "look_s", "learn_s"):
            del row[name]


def _same_run(one: Row, other: Row) -> bool:
    return one["task"] == other["task"] and one["seed"] == other["seed"]


def _number(row: Row, key: str) -> float:
    return float(row[key] or 0.0)


def measure(arguments: argparse.Namespace) -> Report:
    torch.set_num_threads(1)
    with_defaults(arguments)
    if "fashion-mnist" in arguments.tasks:
        need_fashion_mnist()
    rows: list[Row] = []
    for task_name in arguments.tasks:
        case = CASES[task_name]
        task = load_task(case.spec, case.options, case.source)
        model_host, steps, peers = ModelHost(task, seed=0), arguments.steps or case.steps, arguments.peers or case.peers
        for seed in arguments.seeds:
            parts = split_rows(model_host.labels, model_host.samples, peers, parse_split(case.split), seed)
            for name in arguments.variants:
                begun = time.perf_counter()
                row: Row = {"task": task_name, "seed": seed, "peers": peers, "steps": steps}
                rows.append({**row, **run_variant(name, case, model_host, parts, seed, steps)})
                progress_row({**rows[-1], "seconds": time.perf_counter() - begun})
    compare(rows)
    return Report(rows=rows)


def with_defaults(arguments: argparse.Namespace) -> None:
    """Fill in what was not given; UsageError when a variant or task is unknown."""
    quick = arguments.quick
    arguments.tasks = arguments.tasks or (["digits"] if quick else ["fashion-mnist", "gpt"])
    arguments.peers = arguments.peers or (4 if quick else None)
    arguments.steps = arguments.steps or (200 if quick else None)
    arguments.seeds = arguments.seeds or ([1] if quick else [1, 2, 3])
    arguments.variants = arguments.variants or list(QUICK if quick else VARIANTS)
    if set(arguments.variants) - set(VARIANTS) or "magnitude" not in arguments.variants:
        raise UsageError(f"variants are {', '.join(VARIANTS)}; magnitude must be among them")
    if set(arguments.tasks) - set(CASES):
        raise UsageError(f"tasks are {', '.join(CASES)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=words, default=None)
    parser.add_argument("--peers", type=int, default=None)
    parser.add_argument("--steps", type=int, default=None, help="local steps of each peer")
    parser.add_argument("--seeds", type=numbers, default=None)
    parser.add_argument("--variants", type=words, default=None)
    run("importance", measure, parser)


if __name__ == "__main__":
    main()
