"""Language models from few bytes: the delta set against dense averaging, all-reduce, DiLoCo and published sparse rules.

    python -m benchmarks.language --json [--quick] [--mixtures a,b] [--seeds 1,2,3] [--peers 4] [--steps 500]
        [--split parts|iid] [--schemes dense-4x,deltaset …] [--warm 0] [--endless [--settle STEP]]
        [--optimizer adamw|muon] [--small] [--circle 0] [--data FOLDER]

The task `gpt` on bytes (`nano`, context 96, 0.1 M parameters), AdamW or Muon, from scratch; the run's length is planned
(`--until steps:N`), so that the learning rate of every scheme falls towards the end; `--endless` keeps it constant.
The texts are files of this machine (language_texts.py): mixture `a` served to choose constants, `b` never did. With
`--split parts` each peer has texts of one kind.

`deltaset` is the policy with its defaults; `dense-2x` and so on have that factor on the task's learning rate; the rules
of language_rules.py run in step. Entries and messages are those of the node, in lockstep of virtual time.

One row per scheme, mixture and seed: loss (nats per byte on common test data, of what a node shows and exports),
loss_shared (of the shared weights as they are), mb_per_node (received), bytes_ratio (dense / this), gap_nats (above the
best of the dense pairs, whichever of its two weights is better) and gap_shared_nats, learning_rate; for delta sets what
they found: sent_share, gamma, kappa.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import Report, Row, numbers, progress_row, run, words
from benchmarks.frontier import found
from benchmarks.language_rules import RULES, run_rule
from benchmarks.language_texts import MIXTURES, write_mixture
from benchmarks.virtualpeers import Plan, VirtualPeers, in_step
from p2pnode.compression.weights import Floats
from p2pnode.config.split import parse_split
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.registry import policy_named
from p2pnode.shards.split import split_rows
from p2pnode.tasks.find import load_task
from p2pnode.tasks.gpt import ALGORITHMS
from p2pnode.tasks.task import Option
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import UsageError

MODEL: dict[str, Option] = {"size": "nano", "context": 96}
QUICK_MODEL: dict[str, Option] = {"size": "nano", "width": 32, "layers": 1, "context": 64}


@dataclass(frozen=True)
class Scheme:
    """A way to train together, and the factor on the task's learning rate that suits it."""

    policy: str
    rate: float = 1.0
    settings: dict[str, float] = field(default_factory=dict)
    every: int = 10  # steps between exchanges: in step, or the mean of a round


def _fixed(**settings: float) -> dict[str, float]:
    return {"beta": 0.9, "gamma": 2, "interval": 10, "rate": 3.3, **settings}


SCHEMES = {
    "alone": Scheme("alone", 2),
    "dense-half": Scheme("average", 0.5),
    "dense-1x": Scheme("average", 1),
    "dense-2x": Scheme("average", 2),
    "dense-4x": Scheme("average", 4),
    "dense-8x": Scheme("average", 8),
    "dense-4bit-4x": Scheme("average", 4, {"bits": 4}),
    "all-reduce-1x": Scheme("all-reduce", 1),
    "all-reduce-2x": Scheme("all-reduce", 2),
    "all-reduce-4x": Scheme("all-reduce", 4),
    "diloco-1x": Scheme("diloco", 1, every=20),
    "diloco-2x": Scheme("diloco", 2, every=20),
    "sparseloco-2x": Scheme("sparseloco", 2, every=15),
    "senders-2x": Scheme("senders", 2, every=15),
    "nesterov-2x": Scheme("nesterov", 2, every=15),
    "deltaset": Scheme("deltaset"),
    "deltaset-3": Scheme("deltaset", 1, {"density": 0.03}),
    "deltaset-6": Scheme("deltaset", 1, {"density": 0.06}),
    "deltaset-from-shared": Scheme("deltaset", 1, _fixed(density=0.045, kappa=1e-9)),  # x begins at A
    "deltaset-half": Scheme("deltaset", 1, _fixed(density=0.045, kappa=0.5)),  # κ does not follow the others
    "deltaset-1x": Scheme("deltaset", 1, {"rate": 1}),
    "signs": Scheme("deltaset", 1, {"signs": 1}),
    "signs-12": Scheme("deltaset", 1, {"signs": 1, "interval": 12}, every=12),
    "signs-25": Scheme("deltaset", 1, {"signs": 1, "interval": 25}, every=25),
}
USUAL = ("dense-2x", "dense-4x", "dense-8x", "all-reduce-4x", "deltaset")
QUICK = ("dense-4x", "all-reduce-4x", "sparseloco-2x", "deltaset")


def run_scheme(scheme: Scheme, model_host: ModelHost, parts: list[np.ndarray], plan: Plan, genesis: Floats) -> Row:
    """Run a scheme; returns its losses, bytes and what it found."""
    if scheme.policy == "alone":
        trainers = [Trainer(model_host, part, plan.seed * 1000 + number) for number, part in enumerate(parts)]
        ends = [_alone(trainer, genesis, plan) for trainer in trainers]
        return figures(trainers, ends, ends, 0.0)
    if scheme.policy in RULES:
        trainers, weights, received = run_rule(scheme.policy, model_host, parts, plan, genesis, scheme.every)
        return figures(trainers[:1], [weights], [weights], received)
    if scheme.policy == "all-reduce":
        peers, kept = in_step(model_host, parts, plan, genesis, scheme.every)
        last: Floats = np.asarray(np.mean([peer.trained for peer in peers], axis=0, dtype=np.float64), np.float32)
        return figures([peers[0].trainer], [kept[0]], [last], float(peers[0].received))
    swarm = VirtualPeers(model_host, parts, policy_named(scheme.policy), scheme.settings, plan, genesis)
    swarm.run()
    policies = [peer.policy for peer in swarm.peers]
    row = figures(
        [peer.trainer for peer in swarm.peers],
        [policy.readout() for policy in policies],
        [policy.weights() for policy in policies],
        float(np.mean([peer.received for peer in swarm.peers])),
    )
    kappas = [policy.author.retention.kappa for policy in policies if isinstance(policy, DeltaSetPolicy)]
    return {**row, **found(policies[0]), **({"kappa": round(float(np.mean(kappas)), 3)} if kappas else {})}


def _alone(trainer: Trainer, genesis: Floats, plan: Plan) -> Floats:
    weights = genesis
    for done in range(0, plan.steps, 10):
        weights = trainer.steps(weights, min(10, plan.steps - done), rate=plan.rate * plan.decay(done)).weights
    return weights


def figures(trainers: list[Trainer], shown: list[Floats], shared: list[Floats], received: float) -> Row:
    """The figures of a row: means over the nodes."""

    def loss(weights: list[Floats]) -> float:
        each = [trainer.evaluate(one).loss for trainer, one in zip(trainers, weights, strict=True)]
        return round(float(np.mean(each)), 4)

    return {"loss": loss(shown), "loss_shared": loss(shared), "mb_per_node": round(received / 1e6, 3)}


def compare(rows: list[Row]) -> None:
    """Add to each row its gap to the best dense pairs of the same cell, and how many times fewer bytes it took."""

    def best(row: Row) -> float:
        return min(float(row["loss"] or 0.0), float(row["loss_shared"] or 0.0))

    for row in rows:
        dense = [one for one in rows if str(one["scheme"]).startswith("dense-") and "bit" not in str(one["scheme"])]
        same = [one for one in dense if (one["mixture"], one["seed"]) == (row["mixture"], row["seed"])]
        if same:
            base = min(same, key=best)
            row["gap_nats"] = round(float(row["loss"] or 0.0) - best(base), 4)
            row["gap_shared_nats"] = round(float(row["loss_shared"] or 0.0) - best(base), 4)
            taken = float(row["mb_per_node"] or 0.0)
            row["bytes_ratio"] = round(float(base["mb_per_node"] or 0.0) / taken, 1) if taken else None


def measure(arguments: argparse.Namespace) -> Report:
    torch.set_num_threads(1)
    with_defaults(arguments)
    rows: list[Row] = []
    model = QUICK_MODEL if arguments.quick or arguments.small else MODEL
    for mixture in arguments.mixtures:
        with tempfile.TemporaryDirectory() as folder:
            texts = write_mixture(mixture, Path(folder)) if not arguments.data else "own"
            task = load_task("gpt", {**model, "algorithm": arguments.optimizer}, arguments.data or folder)
            model_host = ModelHost(task, seed=0)
            for seed in arguments.seeds:
                rows += _rows(arguments, model_host, mixture, seed, texts)
    compare(rows)
    return Report(rows=rows)


def _rows(arguments: argparse.Namespace, model_host: ModelHost, mixture: str, seed: int, texts: str) -> list[Row]:
    task, rows = model_host.task, []
    parts = split_rows(None, model_host.samples, arguments.peers, parse_split(arguments.split), seed)
    genesis = ModelHost(task, seed=seed).genesis
    if arguments.warm:
        genesis = Trainer(model_host, seed=seed + 77).steps(genesis, arguments.warm).weights
    for name in arguments.schemes:
        begun, scheme = time.perf_counter(), SCHEMES[name]
        dense = scheme.policy == "average"
        plan = Plan(
            arguments.steps,
            partners=1 if dense else 3,
            waits=dense,
            rate=scheme.rate,
            decays=not arguments.endless,
            settle=arguments.settle,
            mean_steps=scheme.every,
            circle=arguments.circle,
            seed=seed,
        )
        row = run_scheme(scheme, model_host, parts, plan, genesis)
        rate = task.learning_rate * scheme.rate * float(row.pop("rate", None) or 1.0)
        cell: Row = {"scheme": name, "mixture": mixture, "seed": seed}
        cell |= {key: getattr(arguments, key) for key in ("optimizer", "peers", "steps", "split")}
        rows.append({**cell, **row, "learning_rate": round(rate, 4), "texts": texts})
        progress_row({**rows[-1], "seconds": time.perf_counter() - begun})
    return rows


def with_defaults(arguments: argparse.Namespace) -> None:
    """Fill in what was not given; UsageError when a scheme or mixture is unknown."""
    arguments.steps = arguments.steps or (120 if arguments.quick else 500)
    arguments.seeds = arguments.seeds or ([1] if arguments.quick else [1, 2, 3])
    arguments.mixtures = arguments.mixtures or (["b"] if arguments.quick else ["a", "b"])
    arguments.schemes = arguments.schemes or list(QUICK if arguments.quick else USUAL)
    if set(arguments.schemes) - set(SCHEMES):
        raise UsageError(f"schemes are {', '.join(SCHEMES)}")
    if arguments.data:
        arguments.mixtures = ["own"]
    elif set(arguments.mixtures) - set(MIXTURES):
        raise UsageError(f"mixtures are {', '.join(MIXTURES)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixtures", type=words, default=None)
    parser.add_argument("--data", default=None, help="a folder of texts instead of the mixtures")
    parser.add_argument("--peers", type=int, default=4)
    parser.add_argument("--circle", type=int, default=0, help="peers that share a delta set; default: all")
    parser.add_argument("--optimizer", choices=ALGORITHMS, default="adamw")
    parser.add_argument("--split", default="parts", help="parts (one kind of text a peer) or iid")
    parser.add_argument("--steps", type=int, default=None, help="local steps of each peer")
    parser.add_argument("--warm", type=int, default=0, help="steps that one node trains on all data before the start")
    parser.add_argument("--endless", action="store_true", help="a constant learning rate, as in a run without an end")
    parser.add_argument("--small", action="store_true", help="the small model of --quick, for long runs")
    parser.add_argument("--settle", type=int, default=0, help="with --endless: ask for a settling phase at this step")
    parser.add_argument("--seeds", type=numbers, default=None)
    parser.add_argument("--schemes", type=words, default=None)
    run("language", measure, parser)


if __name__ == "__main__":
    main()
