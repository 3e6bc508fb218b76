"""What passing shards is worth: rules of routes against no data passed at about equal total bytes.

    python -m benchmarks.shards [--json] [--quick] [--seeds N]

Fashion-MNIST, eight peers, a small perceptron, pairwise averaging. Rows for people, and all of them in the JSON line.
"""

from __future__ import annotations

import argparse
import json

import torch

from benchmarks.common import progress
from benchmarks.shards_swarm import Plan, Swarm

RULES = ("none", "random", "need", "confidence", "unguarded", "combined")
# Without data the bytes go into merges: twice as often is about as much as a shard every fourth round.
MERGE_EVERY = {"none": 5}


def plans(quick: bool, seeds: int) -> list[Plan]:
    if quick:
        return [Plan(rule, rounds=40, merge_every=MERGE_EVERY.get(rule, 10)) for rule in ("none", "combined")]
    headline = [(rule, "dirichlet:0.1", "none") for rule in RULES]
    noisy = [(rule, "dirichlet:0.1", noise) for noise in ("scattered", "flipped") for rule in RULES]
    other = [(rule, split, "none") for split in ("dirichlet:0.3", "iid") for rule in ("none", "random", "combined")]
    return [
        Plan(rule, split, noise, seed, merge_every=MERGE_EVERY.get(rule, 10))
        for rule, split, noise in headline + noisy + other
        for seed in range(1, (seeds if noise == "none" and split == "dirichlet:0.1" else 1) + 1)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shards")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    parser.add_argument("--quick", action="store_true", help="two short runs, within two minutes")
    parser.add_argument("--seeds", type=int, default=3, help="of the headline rows")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for plan in plans(arguments.quick, arguments.seeds):
        rows.append(Swarm(plan).run())
        progress(" ".join(f"{key} {value}" for key, value in rows[-1].items()))
    if arguments.json:
        print(json.dumps({"benchmark": "shards", "quick": arguments.quick, "rows": rows}))
        return
    print("  ".join(f"{key:>15}" for key in rows[0]))
    for row in rows:
        print("  ".join(f"{value!s:>15}" for value in row.values()))


if __name__ == "__main__":
    main()
