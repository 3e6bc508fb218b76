"""How accurate training is for how many bytes: the delta set against averaging, all-reduce, DiLoCo, gossip and none.

    python -m benchmarks.frontier --json [--quick] [--task fashion-mnist|digits|gpt] [--peers 8]
        [--split dirichlet:0.3] [--steps 2500] [--seeds 1,2] [--schemes dense,deltaset …] [--circle 8]

A text for `--task gpt --data kjv`, in eight parts, from Debian's `bible-kjv`:

    mkdir -p kjv && bible -f gen1:1-rev22:21 < /dev/null | cut -d' ' -f2- | split -l 3888 -d - kjv/

`deltaset` is the policy with its defaults: it finds all its numbers itself. `deltaset-0.5` and similar have density,
outer step, rounds and learning rate fixed. The others use the learning rate that suits them best; for texts, AdamW
with the task's own rate and twice that (`-2x`).

One row per scheme and seed: accuracy (of the nodes' read-outs, mean), accuracy_worst, accuracy_x (of the weights right
after training), mb_per_node (received), gap_pp (below dense fp32 pairwise averaging), gap_all_reduce_pp, bytes_ratio
(dense / this), learning_rate; for delta sets also sent_share (of the coordinates, in an entry) and gamma, both at the
end. For `gpt` the figures are losses in nats per byte: loss, loss_worst, loss_x, gap_nats (above dense). With
`--circle N`, groups of N peers share a delta set, with bridges between the groups (`deltaset-0.5-islands` has none);
`bridges` is how many each peer made.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from benchmarks.common import Report, Row, need_fashion_mnist, numbers, progress_row, run, words
from benchmarks.virtualpeers import Peer, Plan, VirtualPeers, in_step
from p2pnode.compression.weights import Floats
from p2pnode.config.split import parse_split
from p2pnode.merging.deltaset.author import MIN_ENTRIES
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.policy import Policy
from p2pnode.merging.registry import policy_named
from p2pnode.shards.split import split_rows
from p2pnode.tasks.find import load_task
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import UsageError


@dataclass(frozen=True)
class Scheme:
    """A way to train together. Without `learning_rate`, the task's own is used, or what a delta set makes of it."""

    policy: str
    settings: dict[str, float] = field(default_factory=dict)
    partners: int = 1
    learning_rate: float | None = None
    waits: bool = False
    mean_steps: float = 10.0


BEST = 0.05  # of 0.01, 0.02, 0.03, 0.05 and 0.1 for dense averaging, all-reduce and the delta set (docs/log.md)
FIXED: dict[str, float] = {"beta": 0.98, "gamma": 1.0, "rate": 1.0, "interval": 1e6}


def schemes(learning_rate: float | None) -> dict[str, Scheme]:
    """The schemes that every task has."""

    def deltaset(density: float, **settings: float) -> Scheme:
        return Scheme("deltaset", {**FIXED, "density": density, **settings}, 3, learning_rate)

    return {
        "alone": Scheme("average", {}, 0, learning_rate),
        "dense": Scheme("average", {}, 1, learning_rate, waits=True),
        "dense-4bit": Scheme("average", {"bits": 4}, 1, learning_rate, waits=True),
        "all-reduce": Scheme("all-reduce", {}, 1, learning_rate),
        "diloco": Scheme("diloco", {"steps": 50}, 3, learning_rate),
        "gossip": Scheme("gossip", {"density": 0.1}, 1, learning_rate, waits=True),
        "deltaset": Scheme("deltaset", {}, 3),
        "deltaset-1": deltaset(0.01),
        "deltaset-0.5": deltaset(0.005),
        "deltaset-0.25": deltaset(0.0025),
        "deltaset-0.5-islands": deltaset(0.005, bridge=0.0),
    }


SCHEMES = schemes(BEST)
DILOCO = {"steps": 20, "rate": 0.4}
TWICE = 0.006  # of the language model's own rate
TEXT = {
    **schemes(None),
    "alone-2x": Scheme("average", {}, 0, TWICE),
    "dense-2x": Scheme("average", {}, 1, TWICE, waits=True),
    "dense-4x": Scheme("average", {}, 1, 2 * TWICE, waits=True),
    "diloco": Scheme("diloco", DILOCO, 3),
    "diloco-2x": Scheme("diloco", DILOCO, 3, TWICE),
    "deltaset-4": Scheme("deltaset", {**FIXED, "density": 0.04, "beta": 0.95}, 3, TWICE, mean_steps=5),
    "deltaset-influence": Scheme("deltaset", {"influence": 1}, 3),
    "deltaset-4-influence": Scheme("deltaset", {"influence": 1, "density": 0.04, "interval": 5}, 3),
    "deltaset-10": Scheme("deltaset", {"density": 0.1}, 3),
    "deltaset-2": Scheme("deltaset", {**FIXED, "density": 0.02, "beta": 0.95, "gamma": 2}, 3, TWICE),
}
ON_DEMAND = ("deltaset-0.5-islands",)  # no bridges
QUICK = ("alone", "dense", "dense-4bit", "gossip", "deltaset", "deltaset-0.5")


def run_scheme(
    scheme: Scheme, model_host: ModelHost, parts: list[np.ndarray], plan: Plan, genesis: Floats
) -> list[Row]:
    """Run a scheme; returns the figures of each node."""
    rate = (scheme.learning_rate or model_host.task.learning_rate) / model_host.task.learning_rate
    plan = replace(plan, partners=scheme.partners, waits=scheme.waits, rate=rate, mean_steps=scheme.mean_steps)
    if scheme.policy == "all-reduce":
        peers, kept = in_step(model_host, parts, plan, genesis, int(scheme.mean_steps))
    else:
        swarm = VirtualPeers(model_host, parts, policy_named(scheme.policy), scheme.settings, plan, genesis)
        swarm.run()
        peers, kept = swarm.peers, [peer.policy.readout() for peer in swarm.peers]
    return [figures(peer, weights) for peer, weights in zip(peers, kept, strict=True)]


def figures(peer: Peer, weights: Floats) -> Row:
    readout, x = peer.trainer.evaluate(weights), peer.trainer.evaluate(peer.trained)
    return {
        "accuracy": readout.accuracy,
        "loss": readout.loss,
        "accuracy_x": x.accuracy,
        "loss_x": x.loss,
        "bytes": peer.received,
        "bridges": peer.bridges,
        **found(peer.policy),
    }


def found(policy: Policy) -> Row:
    """The numbers that a delta set has found by now."""
    if not isinstance(policy, DeltaSetPolicy):
        return {}
    author, peers = policy.author, len(policy.set.heads)
    density = author.options.density or author.steering.density(peers)
    share = max(MIN_ENTRIES / len(author.residual), density)
    rate = policy.pace(peers).rate
    return {"sent_share": share, "gamma": author.options.gamma or author.steering.step(peers), "rate": rate}


def summary(nodes: list[Row], what: str) -> Row:
    values = [float(node[what] or 0.0) for node in nodes]
    worst = max(values) if what == "loss" else min(values)
    return {
        what: round(float(np.mean(values)), 4),
        f"{what}_worst": round(worst, 4),
        f"{what}_x": round(float(np.mean([float(node[f"{what}_x"] or 0.0) for node in nodes])), 4),
        "mb_per_node": round(float(np.mean([float(node["bytes"] or 0) for node in nodes])) / 1e6, 3),
        "bridges": round(float(np.mean([float(node["bridges"] or 0) for node in nodes])), 2),
        **{name: mean_of(nodes, name) for name in ("sent_share", "gamma") if name in nodes[0]},
    }


def mean_of(nodes: list[Row], what: str) -> float:
    return round(float(np.mean([float(node[what] or 0.0) for node in nodes])), 5)


def compare(rows: list[Row], what: str) -> None:
    """Add to each row its gap to dense averaging and to all-reduce of the same seed, and how many times fewer bytes.

    Averaging with one partner at a time is the usual baseline and a weak one; all-reduce shows what exact means reach.
    """
    unit, factor = ("nats", -1.0) if what == "loss" else ("pp", 100.0)
    for row in rows:
        for name, field_name in (("dense", f"gap_{unit}"), ("all-reduce", f"gap_all_reduce_{unit}")):
            base = next((one for one in rows if one["scheme"] == name and one["seed"] == row["seed"]), None)
            if base is None:
                continue
            row[field_name] = round(factor * (float(base[what] or 0.0) - float(row[what] or 0.0)), 4)
            taken = float(row["mb_per_node"] or 0.0)
            if name == "dense":
                row["bytes_ratio"] = round(float(base["mb_per_node"] or 0.0) / taken, 1) if taken else None


def measure(arguments: argparse.Namespace) -> Report:
    torch.set_num_threads(1)
    with_defaults(arguments)
    if arguments.task == "fashion-mnist" and not arguments.data:
        need_fashion_mnist()
    task = load_task(arguments.task, dict(arguments.task_option), arguments.data)
    model_host = ModelHost(task, seed=0)
    what = "loss" if task.name == "gpt" else "accuracy"
    known = TEXT if task.name == "gpt" else SCHEMES
    rows: list[Row] = []
    for seed in arguments.seeds:
        parts = split_rows(model_host.labels, model_host.samples, arguments.peers, parse_split(arguments.split), seed)
        genesis = ModelHost(task, seed=seed).genesis
        if arguments.warm:
            genesis = Trainer(model_host, seed=seed + 77).steps(genesis, arguments.warm).weights
        for name in arguments.schemes:
            begun = time.perf_counter()
            plan = Plan(arguments.steps, circle=arguments.circle, seed=seed)
            nodes = run_scheme(known[name], model_host, parts, plan, genesis)
            row: Row = {"scheme": name, "task": task.name, "split": arguments.split, "peers": arguments.peers}
            row["circle"] = arguments.circle or arguments.peers
            rows.append({**row, "seed": seed, "steps": arguments.steps, **summary(nodes, what)})
            rate = (known[name].learning_rate or task.learning_rate) * float(nodes[0].get("rate") or 1.0)
            rows[-1]["learning_rate"] = round(rate, 4)
            progress_row({**rows[-1], "seconds": time.perf_counter() - begun})
    compare(rows, what)
    return Report(rows=rows)


def with_defaults(arguments: argparse.Namespace) -> None:
    """Fill in what was not given; UsageError when a scheme is unknown."""
    quick = arguments.quick
    arguments.task = arguments.task or ("digits" if quick else "fashion-mnist")
    arguments.split = arguments.split or ("parts" if arguments.task == "gpt" else "dirichlet:0.3")
    arguments.steps = arguments.steps or (400 if quick else 2500)
    arguments.seeds = arguments.seeds or ([1] if quick else [1, 2])
    known = TEXT if arguments.task == "gpt" else SCHEMES
    if arguments.task == "gpt":
        arguments.task_option = [["algorithm", "adamw"], *arguments.task_option]
    usual = [name for name in known if name not in ON_DEMAND]
    arguments.schemes = arguments.schemes or list(QUICK if quick else usual)
    if set(arguments.schemes) - set(known):
        raise UsageError(f"schemes are {', '.join(known)}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", default=None, help="fashion-mnist, digits, gpt or any other task")
    parser.add_argument("--data", default=None, help="where the task's data are")
    parser.add_argument(
        "--task-option",
        type=lambda text: text.split("=", 1),
        action="append",
        default=[],
        help="KEY=VALUE, as often as needed",
    )
    parser.add_argument("--peers", type=int, default=8)
    parser.add_argument("--circle", type=int, default=0, help="peers that share a delta set; all when left out")
    parser.add_argument("--split", default=None, help="iid, parts, dirichlet:ALPHA or labels:K")
    parser.add_argument("--steps", type=int, default=None, help="local steps of each peer")
    parser.add_argument("--warm", type=int, default=0, help="steps that one node trains on all data before the start")
    parser.add_argument("--seeds", type=numbers, default=None)
    parser.add_argument("--schemes", type=words, default=None)
    run("frontier", measure, parser)


if __name__ == "__main__":
    main()
