"""One run of benchmarks.partners, and its figures."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.stats import spearmanr

from benchmarks.common import Figures
from benchmarks.neighbours_views import share_moved
from benchmarks.partners_rules import ALONE, Choosing, Rule, draw_circles, fingerprint, first_fingerprints
from benchmarks.virtualpeers import Plan, VirtualPeers
from p2pnode.compression.weights import Floats
from p2pnode.config.split import parse_split
from p2pnode.merging.registry import policy_named
from p2pnode.shards.split import split_rows
from p2pnode.similarity.communities import grow
from p2pnode.similarity.fingerprint import Row, similarity_table
from p2pnode.training.fingerprinter import Fingerprinter
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.ids import PeerId

CLASSES = 10
CIRCLE = 8
GOSSIP_RATE = 2.5  # times the task's learning rate: what a circle of eight makes of it by itself


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
    far: float = 0.0  # latency between every second peer and the others, in local steps; 0: all are near
    slow: float = 0.0  # local steps a byte takes to and from every second peer, a tenth of it otherwise; 0: none


def known_labels(model_host: ModelHost) -> np.ndarray:
    assert model_host.labels is not None
    return model_host.labels


class Judge:
    """How good weights are on all test data, and on test data like a node's own."""

    def __init__(self, model_host: ModelHost, parts: list[np.ndarray]) -> None:
        self._model_host = model_host
        test, labels = next(model_host.test.pieces(len(model_host.test))), known_labels(model_host)
        self._x, self._y = test["x"], test["y"]
        self.shares = np.stack([np.bincount(labels[part], minlength=CLASSES) / len(part) for part in parts])

    def accuracies(self, weights: Floats, trainer: Trainer, number: int) -> tuple[float, float]:
        with trainer.borrowed(weights), torch.no_grad():
            self._model_host.model.eval()
            right = self._model_host.model(self._x).argmax(1) == self._y
        by_class = np.array([float(right[self._y == label].float().mean()) for label in range(CLASSES)])
        return float(right.float().mean()), float(self.shares[number] @ by_class)

    def figures(self, swarm: VirtualPeers, when: str = "") -> Figures:
        readouts = [peer.policy.readout() for peer in swarm.peers]
        common, own = self._of_all(swarm, readouts)
        return {
            f"common{when}": round(common.mean(), 2),
            f"common_worst{when}": round(common.min(), 2),
            f"own{when}": round(own.mean(), 2),
            f"own_worst{when}": round(own.min(), 2),
        }

    def own_x(self, swarm: VirtualPeers) -> float:
        """Accuracy on test data like the node's own, of the weights right after training."""
        return round(self._of_all(swarm, [peer.trained for peer in swarm.peers])[1].mean(), 2)

    def _of_all(self, swarm: VirtualPeers, weights: list[Floats]) -> np.ndarray:
        pairs = enumerate(zip(swarm.peers, weights, strict=True))
        return 100 * np.array([self.accuracies(vector, peer.trainer, number) for number, (peer, vector) in pairs]).T

    def labels(self) -> list[Row]:
        """The proportions of each node's labels, in the form of fingerprints."""
        return list(np.rint(self.shares * (127 / self.shares.max(axis=1, keepdims=True))).astype(np.int8))

    def label_rank(self, rows: list[Row]) -> float:
        """Rank correlation of the fingerprints' similarity with how alike the labels are, over pairs of peers."""
        unit = self.shares / np.linalg.norm(self.shares, axis=1, keepdims=True)
        pairs = np.triu_indices(len(rows), 1)
        return round(float(spearmanr(similarity_table(np.stack(rows))[pairs], (unit @ unit.T)[pairs]).statistic), 3)


def run_cell(cell: Cell, model_host: ModelHost) -> Figures:
    begun = time.process_time()
    parts = split_rows(known_labels(model_host), model_host.samples, cell.peers, parse_split(cell.split), cell.seed)
    genesis = ModelHost(model_host.task, seed=cell.seed).genesis
    judge, rows = Judge(model_host, parts), first_fingerprints(model_host, parts, genesis, cell.seed)
    rows = judge.labels() if cell.rule.by_labels else rows
    plan = Plan(cell.steps, seed=cell.seed)
    if cell.way == "circles":
        circles = draw_circles(cell.rule.circles, rows, CIRCLE, random.Random(cell.seed))
        swarm = VirtualPeers(model_host, parts, policy_named("deltaset"), {}, plan, genesis, circles)
    else:
        plan = replace(plan, partners=1, waits=True, rate=GOSSIP_RATE)
        swarm = VirtualPeers(model_host, parts, policy_named("gossip"), {"density": 0.1}, plan, genesis)
    if cell.far:
        side = {peer.identity.peer_id: number % 2 for number, peer in enumerate(swarm.peers)}
        swarm.latency = lambda one, other: (
            plan.latency if side[one.identity.peer_id] == side[other.identity.peer_id] else cell.far
        )
    if cell.slow:
        slow = {peer.identity.peer_id for peer in swarm.peers[::2]}
        swarm.per_byte = lambda one, other: (
            cell.slow if {one.identity.peer_id, other.identity.peer_id} & slow else cell.slow / 10
        )
    choosing = Choosing(swarm, model_host, cell.rule, rows)
    swarm.choose = choosing.choose
    found: Figures = {}
    for look in cell.looks:
        swarm.at(look, lambda look=look: found.update(judge.figures(swarm, f"@{look}")))  # type: ignore[misc]
    swarm.run()
    return {
        "table": cell.table, "way": cell.way, "rule": cell.name, "split": cell.split, "seed": cell.seed,
        **judge.figures(swarm), "own_x": judge.own_x(swarm),
        "mb_per_node": round(float(np.mean([peer.received for peer in swarm.peers])) / 1e6, 3),
        "bridges": round(float(np.mean([peer.bridges for peer in swarm.peers])), 2),
        "label_rank": judge.label_rank(rows), "label_rank_at_end": judge.label_rank(list(choosing.rows.values())),
        **found, "took": round(swarm.now, 1),
        "cpu_s": round(time.process_time() - begun, 1),
    }  # fmt: skip


def calm(model_host: ModelHost, alpha: str = "dirichlet:0.3", peers: int = 32, seed: int = 1) -> Figures:
    """The share of peers that change communities when one fingerprint becomes that of a little later, or one comes."""
    parts = split_rows(known_labels(model_host), model_host.samples, peers, parse_split(alpha), seed)
    genesis, taker = ModelHost(model_host.task, seed=seed).genesis, Fingerprinter(model_host, seed)
    view: dict[PeerId, Row] = {}
    later: dict[PeerId, Row] = {}
    for number, part in enumerate(parts):
        trainer, peer = Trainer(model_host, part, seed=number), PeerId(f"{number:03d}")
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
