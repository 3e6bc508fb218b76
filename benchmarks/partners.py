"""Rules for choosing partners compared with each other, and both aims, on two kinds of test data.

    python -m benchmarks.partners [--json] [--quick] [--tables rules,aims] [--only community,dirichlet:0.1,circles,1]
        [--steps 300] [--peers 32] [--seeds 1,2]

Fashion-MNIST, 32 peers, a small perceptron. `circles`: delta sets in circles of 8 with bridges; the rule draws the
circles and chooses the peers that bridges go to. `gossip`: the rule chooses the partner of each exchange. One row per
way, rule, split and seed: accuracy of the nodes' read-outs (mean, worst) on test data common to all, and on test data
that has labels in the proportions of the node's own; `own_x` of the weights right after training; mb_per_node
(received); bridges per node; `label_rank`, how well the first fingerprints predict whose labels are alike (rank
correlation), and `label_rank_at_end`; the time it took, in local steps.

Tables: `rules`; `aims`, longer, with accuracies on the way, annealing six times as fast as the package's, and `own`
also as fast as `shared`, to see it settle; `labels`, what a fingerprint that showed the labels exactly would bring;
`weights`, one setting of the community rule changed at a time; `links`, the weight of links where half of the peers are
far away (`link-…`) or slow (`rate-…`), with accuracies at the time at which the nearest are done. The last three tables
run with the first seed only. `--only` takes rules, splits, ways and seeds; a kind that is not named is not restricted
(but the split `dirichlet:1` runs only where it is named). Without it, the end has: how many peers change communities
when one fingerprint changes, or one peer arrives. Two runs are under way at a time, in processes of their own; the
whole takes about forty minutes of processor time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import product
from multiprocessing import get_context
from typing import Any

import torch

from benchmarks.common import Figures, Report, Row, need_fashion_mnist, numbers, progress_row, run, words
from benchmarks.partners_rules import Rule
from benchmarks.partners_run import Cell, calm, run_cell
from p2pnode.similarity.annealing import ROUNDS_TO_ONE
from p2pnode.similarity.partners import PartnerSettings
from p2pnode.tasks.fashion_mnist import FashionMnist
from p2pnode.training.host import ModelHost
from p2pnode.wire.errors import UsageError

HIDDEN = 64
STEPS = 300
LONG = 700
QUICKER = 6.0  # annealing, where its whole course is to be seen
SLOWER_OWN = ROUNDS_TO_ONE["own"] / ROUNDS_TO_ONE["shared"]  # that much longer the aim `own` takes to settle
FAR = 3.0  # local steps that a message between regions takes; within one it is a tenth of that
SLOW = 1 / 1000  # local steps that a byte takes to or from slow peers; between others it is a tenth of that
SPLITS = ("iid", "dirichlet:1", "dirichlet:0.3", "dirichlet:0.1")  # the second only where --only names it
WAYS = ("circles", "gossip")
TABLES = ("rules", "aims", "labels", "weights", "links")


def changed(everyone: bool = False, **settings: Any) -> Rule:
    return Rule("across", "community", settings=replace(PartnerSettings(), **settings), everyone=everyone)


RULES = {
    "random": Rule("random", "random"),
    "similar": Rule("similar", "similar"),
    "dissimilar": Rule("dissimilar", "dissimilar"),
    "community": Rule("across", "community"),
    "community-own": Rule("within", "community", aim="own"),
}
LABELS = {
    "labels": Rule("across", "community", by_labels=True),
    "labels-own": Rule("within", "community", aim="own", by_labels=True),
}
AIMS = {
    "shared": Rule("across", "community", quicker=QUICKER),
    "own": Rule("within", "community", aim="own", quicker=QUICKER),
    "own-settled": Rule("within", "community", aim="own", quicker=QUICKER * SLOWER_OWN),
}
WEIGHTS = {
    "circles": {
        **{f"explore-{share}": changed(explore=share) for share in (0.0, 0.15, 0.3, 0.6)},
        **{f"bridges-{often}": replace(changed(), often=often) for often in (3, 10)},
    },
    "gossip": {
        "explore-0.6": changed(explore=0.6),
        "everyone": changed(True),
        "everyone-fairness-0": changed(True, fairness=0.0),
        "everyone-fairness-3": changed(True, fairness=3.0),
        "everyone-patience-5": changed(True, fairness=3.0, patience=5),
        "everyone-similar": changed(True, similarity=5.0),
        "everyone-dissimilar": changed(True, similarity=-5.0),
    },
}
LINKS = {f"link-{weight}": changed(True, link=weight) for weight in (0.0, 0.5, 1.0, 2.0)}
RATES = {f"rate-{weight}": changed(True, link=weight) for weight in (0.0, 0.5, 1.0, 2.0)}
NAMES = {*RULES, *AIMS, *LABELS, *LINKS, *RATES, *(name for rules in WEIGHTS.values() for name in rules)}


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """The runs that were asked for, in order."""
    steps, peers, tables = arguments.steps or STEPS, arguments.peers, arguments.tables
    skewed = ("dirichlet:0.3", "dirichlet:0.1")
    usual = [split for split in SPLITS if split != "dirichlet:1" or split in arguments.only]
    for seed in arguments.seeds:
        if "rules" in tables:
            splits = ["dirichlet:0.1"] if arguments.quick else usual
            for text, way, name in product(splits, WAYS, RULES):
                yield Cell("rules", way, name, RULES[name], text, seed, steps, peers)
        if "aims" in tables:
            length = arguments.steps or LONG
            looks = (length // 8, length // 4, length // 2)
            for text, name in product(skewed, AIMS):
                yield Cell("aims", "circles", name, AIMS[name], text, seed, length, peers, looks)
        if seed != arguments.seeds[0]:
            continue  # these vary less between seeds, and all tables together would take an hour
        if "labels" in tables:
            for text, way, name in product(skewed, WAYS, LABELS):
                yield Cell("labels", way, name, LABELS[name], text, seed, steps, peers)
        if "weights" in tables:
            for text, (way, rules) in product(skewed, WEIGHTS.items()):
                for name, rule in rules.items():
                    yield Cell("weights", way, name, rule, text, seed, steps, peers)
        if "links" in tables:
            for name, rule in LINKS.items():
                yield Cell("links", "gossip", name, rule, "dirichlet:0.1", seed, steps, peers, (steps,), far=FAR)
            for name, rule in RATES.items():
                yield Cell("links", "gossip", name, rule, "dirichlet:0.1", seed, steps, peers, (steps,), slow=SLOW)


def wanted(cell: Cell, only: list[str]) -> bool:
    """Whether --only admits the cell: of each kind of word in it, one must name the cell."""
    kinds = ((cell.name, NAMES), (cell.split, set(SPLITS)), (cell.way, set(WAYS)))
    named = [(value, known & set(only)) for value, known in kinds]
    seeds = {word for word in only if word.isdigit()}
    return all(value in words for value, words in named if words) and (not seeds or str(cell.seed) in seeds)


def with_defaults(arguments: argparse.Namespace) -> None:
    """Fill in what was not given; UsageError when --only or --tables has an unknown word."""
    arguments.tables = ["rules"] if arguments.quick else arguments.tables
    arguments.steps = arguments.steps or (40 if arguments.quick else 0)
    arguments.peers = arguments.peers or (16 if arguments.quick else 32)
    arguments.seeds = arguments.seeds or ([1] if arguments.quick else [1, 2])
    known = {*NAMES, *SPLITS, *WAYS}
    unknown = [word for word in arguments.only if word not in known and not word.isdigit()]
    if unknown or set(arguments.tables) - set(TABLES):
        raise UsageError(f"--only knows {', '.join(sorted(known))} and seeds; tables are {', '.join(TABLES)}")


@cache
def model_host() -> ModelHost:
    """The model and the data of this process."""
    torch.set_num_threads(1)
    return ModelHost(FashionMnist(hidden=HIDDEN), seed=0)


def figures_of(cell: Cell) -> Figures:
    return run_cell(cell, model_host())


def measure(arguments: argparse.Namespace) -> Report:
    with_defaults(arguments)
    need_fashion_mnist()
    rows: list[Row] = []
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for found in pool.map(figures_of, [cell for cell in cells(arguments) if wanted(cell, arguments.only)]):
            rows.append({**found})
            progress_row(rows[-1])
    return Report({} if arguments.only else calm(model_host(), peers=arguments.peers), rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=words, default=["rules", "aims"], help=", ".join(TABLES))
    parser.add_argument("--only", type=words, default=[], help="rules, splits, ways and seeds, with commas between")
    parser.add_argument("--steps", type=int, default=0, help="local steps of each peer")
    parser.add_argument("--peers", type=int, default=0)
    parser.add_argument("--seeds", type=numbers, default=[])
    run("partners", measure, parser)


if __name__ == "__main__":
    main()
