"""Whom to learn with: rules of choosing partners beside each other, and both aims, on two kinds of test data.

    python -m benchmarks.partners [--json] [--quick] [--tables rules,aims] [--only community,dirichlet:0.1,circles,1]
        [--steps 300] [--peers 32] [--seeds 1,2]

Fashion-MNIST, 32 peers, a small perceptron. `circles`: delta sets in circles of 8 with bridges; the rule draws the
circles and says whom bridges go to. `gossip`: the rule names the partner of each exchange. One row per way, rule, split
and seed: accuracy of the nodes' read-outs (mean, worst) on test data common to all and on test data that has labels in
the proportions of the node's own; mb_per_node (received), bridges a node made, `told`: how well the first fingerprints
tell whose labels are alike (rank correlation), and at the end.

Tables: `rules`; `aims`, longer, with looks on the way, annealing four times as fast as the package's; `labels`, what a
fingerprint that told the labels exactly would bring; `weights`, one setting of the community rule changed at a time.
`--only` takes rules, splits, ways and seeds; a kind not named is not restricted. At the end: how many peers change
communities when one fingerprint changes, or one peer comes.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.stats import spearmanr

from benchmarks.common import progress
from benchmarks.nearest import share_moved
from benchmarks.partners_rules import ALONE, Choosing, Rule, draw_circles, fingerprint, first_fingerprints
from benchmarks.virtualpeers import Plan, VirtualPeers
from p2pnode.communities.dendrogram import grow
from p2pnode.communities.fingerprint import Row, similarity_table
from p2pnode.communities.partners import PartnerSettings
from p2pnode.ids import PeerId
from p2pnode.merge.registry import policy_named
from p2pnode.node.bench import Bench
from p2pnode.node.fingerprinting import Fingerprinter
from p2pnode.node.trainer import Trainer
from p2pnode.shards.share import parse_split, split
from p2pnode.tasks.fashion_mnist import CLASSES, FashionMnist
from p2pnode.weights import Floats

CIRCLE = 8
HIDDEN = 64
STEPS = 300
GOSSIP_RATE = 2.5  # times the task's learning rate: what a circle of eight makes of it by itself
SPLITS = ("iid", "dirichlet:1", "dirichlet:0.3", "dirichlet:0.1")
WAYS = ("circles", "gossip")
TABLES = ("rules", "aims", "labels", "weights")

Figures = dict[str, float | int | str]


def changed(**settings: float) -> Rule:
    return Rule("across", "community", settings=replace(PartnerSettings(), **settings))


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
    "shared": Rule("across", "community", quicker=4.0),
    "own": Rule("within", "community", aim="own", quicker=4.0),
    "own-quickly": Rule("within", "community", quicker=4.0),
    "random": Rule("random", "random", quicker=4.0),
}
WEIGHTS = {
    "as it is": changed(),
    "explore-0": changed(explore=0.0),
    "explore-0.3": changed(explore=0.3),
    "explore-0.6": changed(explore=0.6),
    "fairness-0": changed(fairness=0.0),
    "fairness-3": changed(fairness=3.0),
    "patience-10": changed(patience=10),
    "similarity-5": changed(similarity=5.0),
    "similarity-minus-5": changed(similarity=-5.0),
}


@dataclass(frozen=True)
class Cell:
    """One run. `looks` are times on the way at which accuracy is taken, in local steps."""

    table: str
    way: str
    name: str
    rule: Rule
    split: str
    seed: int
    steps: int
    peers: int = 32
    looks: tuple[int, ...] = ()


class Judge:
    """How good weights are on all test data, and on test data like a node's own."""

    def __init__(self, bench: Bench, parts: list[np.ndarray]) -> None:
        self._bench = bench
        self._x, self._y = bench.test["x"], bench.test["y"]
        labels = bench.data["y"].numpy()
        self.shares = np.stack([np.bincount(labels[part], minlength=CLASSES) / len(part) for part in parts])

    def accuracies(self, weights: Floats, trainer: Trainer, number: int) -> tuple[float, float]:
        with trainer.borrowed(weights), torch.no_grad():
            self._bench.model.eval()
            right = self._bench.model(self._x).argmax(1) == self._y
        by_class = np.array([float(right[self._y == label].float().mean()) for label in range(CLASSES)])
        return float(right.float().mean()), float(self.shares[number] @ by_class)

    def figures(self, swarm: VirtualPeers, when: str = "") -> Figures:
        found = [
            self.accuracies(peer.policy.readout(), peer.trainer, number) for number, peer in enumerate(swarm.peers)
        ]
        common, own = (100 * np.array(found)).T
        return {
            f"common{when}": round(common.mean(), 2),
            f"common_worst{when}": round(common.min(), 2),
            f"own{when}": round(own.mean(), 2),
            f"own_worst{when}": round(own.min(), 2),
        }

    def labels(self) -> list[Row]:
        """The proportions of each node's labels, in the form of fingerprints."""
        return list(np.rint(self.shares * (127 / self.shares.max(axis=1, keepdims=True))).astype(np.int8))

    def told(self, rows: list[Row]) -> float:
        """Rank correlation of the fingerprints' similarity with how alike the labels are, over pairs of peers."""
        unit = self.shares / np.linalg.norm(self.shares, axis=1, keepdims=True)
        pairs = np.triu_indices(len(rows), 1)
        return round(float(spearmanr(similarity_table(np.stack(rows))[pairs], (unit @ unit.T)[pairs]).statistic), 3)


def run_cell(cell: Cell, bench: Bench) -> Figures:
    begun = time.process_time()
    parts = split(bench.data["y"].numpy(), bench.samples, cell.peers, parse_split(cell.split), cell.seed)
    genesis = Bench(bench.task, seed=cell.seed).genesis
    judge, rows = Judge(bench, parts), first_fingerprints(bench, parts, genesis, cell.seed)
    rows = judge.labels() if cell.rule.by_labels else rows
    plan = Plan(cell.steps, seed=cell.seed)
    if cell.way == "circles":
        circles = draw_circles(cell.rule.circles, rows, CIRCLE, random.Random(cell.seed))
        swarm = VirtualPeers(bench, parts, policy_named("deltaset"), {}, plan, genesis, circles)
    else:
        plan = replace(plan, partners=1, waits=True, rate=GOSSIP_RATE)
        swarm = VirtualPeers(bench, parts, policy_named("gossip"), {"density": 0.1}, plan, genesis)
    choosing = Choosing(swarm, bench, cell.rule, rows)
    swarm.choose = choosing.choose
    found: Figures = {}
    for look in cell.looks:
        swarm.at(look, lambda look=look: found.update(judge.figures(swarm, f"@{look}")))  # type: ignore[misc]
    swarm.run()
    return {
        "table": cell.table, "way": cell.way, "rule": cell.name, "split": cell.split, "seed": cell.seed,
        **judge.figures(swarm),
        "mb_per_node": round(float(np.mean([peer.received for peer in swarm.peers])) / 1e6, 3),
        "bridges": round(float(np.mean([peer.bridges for peer in swarm.peers])), 2),
        "told": judge.told(rows), "told_at_end": judge.told(list(choosing.rows.values())),
        **found,
        "cpu_s": round(time.process_time() - begun, 1),
    }  # fmt: skip


def calm(bench: Bench, alpha: str = "dirichlet:0.3", peers: int = 32, seed: int = 1) -> Figures:
    """The share of peers that change communities when one fingerprint becomes that of a little later, or one comes."""
    parts = split(bench.data["y"].numpy(), bench.samples, peers, parse_split(alpha), seed)
    genesis, taker = Bench(bench.task, seed=seed).genesis, Fingerprinter(bench, seed)
    view: dict[PeerId, Row] = {}
    later: dict[PeerId, Row] = {}
    for number, part in enumerate(parts):
        trainer, peer = Trainer(bench, part, seed=number), PeerId(f"{number:03d}")
        weights = trainer.steps(genesis, 5 * ALONE).weights
        view[peer] = fingerprint(taker, trainer, weights)
        later[peer] = fingerprint(taker, trainer, trainer.steps(weights, 10).weights)
    changes, arrivals = [], []
    for progress_made in (0.0, 0.25, 0.5, 0.75):
        before = grow(view).cut(progress_made)
        for peer in view:
            changes.append(share_moved(before, grow({**view, peer: later[peer]}).cut(progress_made)))
            without = {other: row for other, row in view.items() if other != peer}
            arrivals.append(share_moved(grow(without).cut(progress_made), before))
    return {
        "moved_by_one_change": round(float(np.mean(changes)), 4),
        "moved_by_one_change_worst": round(max(changes), 4),
        "moved_by_one_arrival": round(float(np.mean(arrivals)), 4),
        "moved_by_one_arrival_worst": round(max(arrivals), 4),
    }


def cells(arguments: argparse.Namespace) -> Iterator[Cell]:
    """What is asked for, in the order in which it is run."""
    steps, peers, seeds = arguments.steps, arguments.peers, arguments.seeds
    for seed in seeds:
        if "rules" in arguments.tables:
            splits = ("dirichlet:0.1",) if arguments.quick else SPLITS
            for way, text, name in ((way, text, name) for text in splits for way in WAYS for name in RULES):
                yield Cell("rules", way, name, RULES[name], text, seed, steps or STEPS, peers)
        if "aims" in arguments.tables:
            length = steps or 1000
            looks = (length // 8, length // 4, length // 2)
            for text, name in ((text, name) for text in ("dirichlet:0.3", "dirichlet:0.1") for name in AIMS):
                yield Cell("aims", "circles", name, AIMS[name], text, seed, length, peers, looks)
        if "labels" in arguments.tables:
            splits = ("dirichlet:0.3", "dirichlet:0.1")
            for way, text, name in ((way, text, name) for text in splits for way in WAYS for name in LABELS):
                yield Cell("labels", way, name, LABELS[name], text, seed, steps or STEPS, peers)
        if "weights" in arguments.tables:
            for way, name in ((way, name) for way in WAYS for name in WEIGHTS):
                yield Cell("weights", way, name, WEIGHTS[name], "dirichlet:0.1", seed, steps or STEPS, peers)


def wanted(cell: Cell, only: list[str]) -> bool:
    """Whether each kind of word that is there names the cell."""
    kinds = ((cell.name, {*RULES, *AIMS, *LABELS, *WEIGHTS}), (cell.split, set(SPLITS)), (cell.way, set(WAYS)))
    named = [(value, known & set(only)) for value, known in kinds]
    seeds = {word for word in only if word.isdigit()}
    return all(value in words for value, words in named if words) and (not seeds or str(cell.seed) in seeds)


def parsed() -> argparse.Namespace:
    def words(text: str) -> list[str]:
        return [word for word in text.split(",") if word]

    parser = argparse.ArgumentParser(prog="python -m benchmarks.partners")
    parser.add_argument("--json", action="store_true", help="one JSON line on stdout")
    parser.add_argument("--quick", action="store_true", help="few peers and steps, within two minutes")
    parser.add_argument("--tables", type=words, default=["rules", "aims"], help=", ".join(TABLES))
    parser.add_argument("--only", type=words, default=[], help="rules, splits, ways and seeds, with commas between")
    parser.add_argument("--steps", type=int, default=0, help="local steps of each peer")
    parser.add_argument("--peers", type=int, default=0)
    parser.add_argument("--seeds", type=words, default=[])
    arguments = parser.parse_args()
    arguments.tables = ["rules"] if arguments.quick else arguments.tables
    arguments.steps = arguments.steps or (80 if arguments.quick else 0)
    arguments.peers = arguments.peers or (16 if arguments.quick else 32)
    arguments.seeds = [int(seed) for seed in arguments.seeds] or ([1] if arguments.quick else [1, 2])
    known = {*RULES, *AIMS, *LABELS, *WEIGHTS, *SPLITS, *WAYS}
    unknown = [word for word in arguments.only if word not in known and not word.isdigit()]
    if unknown or set(arguments.tables) - set(TABLES):
        parser.error(f"--only knows {', '.join(sorted(known))} and seeds; tables are {', '.join(TABLES)}")
    return arguments


def main() -> None:
    torch.set_num_threads(1)
    arguments = parsed()
    bench = Bench(FashionMnist(hidden=HIDDEN), seed=0)
    rows = []
    for cell in cells(arguments):
        if wanted(cell, arguments.only):
            rows.append(run_cell(cell, bench))
            progress(" ".join(f"{key} {value}" for key, value in rows[-1].items()))
    found: Figures = calm(bench, peers=arguments.peers)
    if arguments.json:
        print(json.dumps({"benchmark": "partners", "quick": arguments.quick, "rows": rows, **found}))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    print("  ".join(f"{key} {value}" for key, value in found.items()))


if __name__ == "__main__":
    main()
