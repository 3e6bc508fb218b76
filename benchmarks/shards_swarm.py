"""Eight peers that train in step, pass shards to each other and merge: the engine of benchmarks.shards.

The decisions are the package's own (routes, states of data, sampling, confidence, merge policies and their messages);
network and keys are left out. A peer's history of a shard is what a node's would be: what came with it, and its own
visit; copies travel separately, so nobody knows of visits of other copies.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from benchmarks.shards_data import PROBES, SAMPLES, Places, deal
from benchmarks.shards_merges import Merging, Rows
from benchmarks.shards_models import SIZES, Models, outputs_of
from benchmarks.shards_tuning import RouteTuning, choose_mixture, learnt, with_mixture
from p2pnode.compression.weights import Doubles
from p2pnode.shards.confidence import Confidences
from p2pnode.shards.route import RouteRules, ShardCandidate, ShardView, choose_shipment
from p2pnode.shards.sample_states import SampleStates, Shares, StateRules, age_of_round, chances, scored, untouched
from p2pnode.shards.visits import EarlierVisits
from p2pnode.training.batches import DrawnBatches, base_chances, sampling

STAY = 8  # rounds after which a receiver tells of a shipment, to a giver that learns from it

Row = dict[str, float | int | str]


@dataclass(frozen=True)
class Plan:
    """One row of the table."""

    rule: str = "combined"  # or "none", or "unguarded": confidence, with no guard, and nothing put aside
    split: str = "dirichlet:0.1"
    noise: str = "none"  # scattered, flipped
    merges: str = "gossip"  # or deltaset, or dense: averaging in fp32
    seed: int = 1
    peers: int = 8
    rounds: int = 100
    steps: int = 1000  # in all rounds together
    batch: int = 32
    rate: float = 0.1
    ship_every: int = 4  # rounds
    density: float = 0.0  # of merges; 0: the policy's own
    measured: int = 5  # rounds at the end over which accuracies are averaged: single ones are noisy
    reserve: bool = False  # sure data are drawn less often, and steps left out accordingly
    tuned: bool = False  # the weights of the rules by the bandit
    states: StateRules = field(default_factory=StateRules)
    routes: RouteRules = field(default_factory=lambda: RouteRules(forget_seconds=50.0))  # seconds are rounds here

    @property
    def guarded(self) -> bool:
        return self.rule != "unguarded"


@dataclass(frozen=True)
class Sent:
    shard: int
    giver: int
    to: int
    round: int
    mixture: int


class Swarm:
    """All peers of a run."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.rng = plan, Random(plan.seed)
        self.data = deal(plan.split, plan.noise, plan.peers, plan.seed)
        self.labels = torch.from_numpy(self.data.labels)
        self.held = [list(held) for held in self.data.held]
        self.models = Models(plan.peers, plan.seed)
        self.merging = Merging(plan.merges, self.models.genesis, SIZES, plan.peers, plan.seed, plan.density)
        self.after: Rows = self.merging.starts()
        self.seen = [Confidences(SAMPLES) for _ in range(plan.peers)]
        self.first: list[Shares] = [np.full(SAMPLES, np.nan, np.float32) for _ in range(plan.peers)]
        self.age = [0.0] * plan.peers
        self.states: list[SampleStates] = [untouched(SAMPLES) for _ in range(plan.peers)]
        self.visits: list[dict[int, dict[str, EarlierVisits]]] = [{shard: {} for shard in held} for held in self.held]
        self.tunings = [RouteTuning() for _ in range(plan.peers)]
        self.sent: list[Sent] = []
        self.measured: list[list[float]] = []
        self.data_bytes = self.steps_done = 0
        self.training_seconds = 0.0

    def run(self) -> Row:
        self.play()
        return self._row()

    def play(self) -> None:
        """All rounds."""
        starts, plan = self.merging.starts(), self.plan
        for number in range(1, plan.rounds + 1):
            self.models.put(starts)
            begun_at = time.process_time()
            steps = self._train(number)
            self.training_seconds += time.process_time() - begun_at
            self.after = self.models.get()
            if plan.rule != "none" and number % plan.ship_every == 0:
                similarities = self._similarities()
                for peer in range(plan.peers):
                    self._ship(peer, number, similarities[peer])
            starts = self.merging.end_round(starts, self.after, steps, steps * plan.batch)
            if number > plan.rounds - plan.measured:
                self._measure(self.after if plan.merges == "deltaset" else starts)

    # ---- training, and what falls out of it ----

    def _train(self, number: int) -> int:
        plan = self.plan
        batches = [self._batches(peer, number) for peer in range(plan.peers)]
        steps = plan.steps * number // plan.rounds - plan.steps * (number - 1) // plan.rounds
        if plan.reserve:
            steps = max(1, round(steps * float(np.mean([self._active(peer) for peer in range(plan.peers)]))))
        touched: list[tuple[Places, Shares]] = []
        for _ in range(steps):
            drawn = [one.next() for one in batches]
            places, weights = torch.stack([d[0] for d in drawn]), torch.stack([d[1] for d in drawn])
            outputs = self.models.outputs(self.data.x[places])
            losses = functional.cross_entropy(outputs.flatten(0, 1), self.labels[places].flatten(), reduction="none")
            self.models.step((losses.view_as(weights) * weights).mean(1).sum(), plan.rate)
            touched.append((places.numpy(), torch.exp(-losses.detach()).view_as(weights).numpy()))
        for peer in range(plan.peers):
            self._touched(peer, [where[peer] for where, _ in touched], [shares[peer] for _, shares in touched])
        self.steps_done += steps
        return steps

    def _touched(self, peer: int, places: list[Places], shares: list[Shares]) -> None:
        """Note all confidences; the first of the round in each sample is that of the merged weights."""
        for where, what in zip(places, shares, strict=True):
            self.seen[peer].note(where, what)
        once, at = np.unique(np.concatenate(places), return_index=True)
        first = np.concatenate(shares)[at]
        self.first[peer][once] = np.where(np.isnan(self.first[peer][once]), first, self.first[peer][once])
        self.age[peer] += age_of_round(sum(map(len, places)), len(self._samples(peer)))
        usual = float(np.median(first))
        self.states[peer] = scored(self.states[peer], f"{int(self.age[peer])}", once, first, usual, self.plan.states)

    def _samples(self, peer: int) -> Places:
        return np.concatenate([self.data.shards[shard] for shard in self.held[peer]])

    def _base(self, peer: int, samples: Places) -> Doubles:
        return base_chances(self.data.labels[samples], ~np.isin(samples, self.data.own(peer)))

    def _batches(self, peer: int, number: int) -> DrawnBatches:
        samples = self._samples(peer)
        how = chances(self.states[peer])[samples] if self.plan.guarded else np.ones(len(samples), np.float32)
        how = how if self.plan.reserve else (how > 0).astype(np.float32)
        base, seed = self._base(peer, samples), self.plan.seed * 1000 + peer + 8 * number
        return DrawnBatches(torch.from_numpy(samples), sampling(base, how), self.plan.batch, seed)

    def _active(self, peer: int) -> float:
        """The share of its data, by what they are worth, that the reserve leaves to train on."""
        samples = self._samples(peer)
        base, how = self._base(peer, samples), chances(self.states[peer])[samples]
        return float((base * how).sum() / base[how > 0].sum())

    # ---- shards that travel ----

    def _ship(self, peer: int, number: int, similarities: list[float]) -> None:
        plan, rules, mixture = self.plan, self.plan.routes, 0
        if plan.tuned:
            self._hear(peer, number)
            mixture = choose_mixture(self.tunings[peer])
            rules = with_mixture(rules, mixture)
        if not plan.guarded:
            rules = RouteRules(forget_seconds=rules.forget_seconds, failing_models=1 << 30, max_quarantined=1.0)
        peers = [
            ShardCandidate(
                str(other),
                str(other),
                self.data.counts(self.held[other]),
                similarities[other],
                frozenset(map(str, self.held[other])),
            )
            for other in range(plan.peers)
            if other != peer
        ]
        mine = [self._view(peer, shard, number) for shard in self.held[peer]]
        rule = plan.rule if plan.guarded else "confidence"
        shipment = choose_shipment(mine, peers, 1 << 30, float(number), self.rng, rule=rule, rules=rules)
        if shipment is not None:
            self._arrive(Sent(int(shipment.shard), peer, int(shipment.peer), number, mixture))

    def _view(self, peer: int, shard: int, number: int) -> ShardView:
        places = self.data.shards[shard]
        return ShardView(
            str(shard),
            self.data.shard_bytes(shard),
            self.seen[peer].mean(places),
            self.data.counts([shard]),
            self._history(peer, shard, number),
            float(self.states[peer].quarantined[places].mean()),
        )

    def _history(self, peer: int, shard: int, number: int) -> dict[str, EarlierVisits]:
        """What came with the shard, and this peer's own visit."""
        places = self.data.shards[shard]
        first, after = self.first[peer][places], self.seen[peer].mean(places)
        if np.isnan(first).all():
            return self.visits[peer][shard]
        visit = EarlierVisits(str(peer), 1, float(np.nanmean(first)), after, float(number))
        return {**self.visits[peer][shard], str(peer): visit}

    def _arrive(self, sent: Sent) -> None:
        """A copy with its history."""
        self.data_bytes += self.data.shard_bytes(sent.shard)
        self.visits[sent.to][sent.shard] = self._history(sent.giver, sent.shard, sent.round)
        self.held[sent.to].append(sent.shard)
        self.sent.append(sent)

    def _hear(self, peer: int, number: int) -> None:
        """Learn of the stays that ended since this peer shipped last."""
        for sent in self.sent:
            if sent.giver == peer and number - sent.round == STAY:
                visit = self._history(sent.to, sent.shard, number).get(str(sent.to))
                before, after = (visit.before, visit.after) if visit else (0.0, 0.0)
                size = self.data.shard_bytes(sent.shard)
                self.tunings[peer] = learnt(self.tunings[peer], sent.mixture, before, after, size)

    def _similarities(self) -> list[list[float]]:
        """How alike the peers' answers to the probe are: cosines of centred probabilities."""
        said = [torch.softmax(outputs_of(weights, self.data.test_x[:PROBES]), 1) for weights in self.after]
        unit = functional.normalize(torch.stack([(one - one.mean(0)).flatten() for one in said]), dim=1)
        alike: list[list[float]] = (unit @ unit.T).clamp(0, 1).tolist()
        return alike

    # ---- what is measured ----

    def _measure(self, nodes: Rows) -> None:
        """`nodes`: what each peer has; of a delta set its x, right after training."""
        each, kept = ([self._accuracy(weights) for weights in rows] for rows in (nodes, self.merging.readouts()))
        self.measured.append([*each, float(np.mean(kept)), self._accuracy(nodes.mean(0))])

    def _row(self) -> Row:
        plan = self.plan
        *each, readout, averaged = np.mean(self.measured, axis=0)
        precision, recall = self._noise_found()
        wrong = [float(self.data.wrong[self.data.shards[sent.shard]].mean()) for sent in self.sent]
        return {
            "rule": plan.rule + (" tuned" if plan.tuned else "") + (" reserve" if plan.reserve else ""),
            "split": plan.split, "noise": plan.noise, "merges": plan.merges, "seed": plan.seed,
            "node": round(float(np.mean(each)), 2), "worst": round(float(min(each)), 2),
            "averaged": round(float(averaged), 2), "readout": round(float(readout), 2),
            "data_mb": round(self.data_bytes / 1e6, 2), "merge_mb": round(self.merging.bytes / 1e6, 2),
            "precision": precision, "recall": recall, "wrong_shipped": round(float(np.mean(wrong or [0.0])), 3),
            "steps": self.steps_done, "training_s": round(self.training_seconds, 2),
        }  # fmt: skip

    def _noise_found(self) -> tuple[float, float]:
        """Precision and recall of what any peer has put aside."""
        flagged, wrong = np.zeros(SAMPLES, np.bool_), self.data.wrong
        for peer, states in enumerate(self.states):
            samples = self._samples(peer)
            flagged[samples] |= states.quarantined[samples]
        found = int((flagged & wrong).sum())
        return round(found / max(1, int(flagged.sum())), 3), round(found / max(1, int(wrong.sum())), 3)

    def _accuracy(self, weights: NDArray[np.float32]) -> float:
        right = outputs_of(weights, self.data.test_x).argmax(1) == self.data.test_y
        return 100 * float(right.float().mean())
