"""Eight peers that train in step, pass shards to each other and average pairwise: the engine of benchmarks.shards.

The decisions are the package's own (routes, states of data, sampling, confidence); network and keys are left out. All
peers' perceptrons are trained in one batched product, so a run takes seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from p2pnode.shards.confidence import Confidences, label_confidence
from p2pnode.shards.datum import DatumStates, StateRules, chances, scored, untouched
from p2pnode.shards.route import PeerView, RouteRules, ShardView, choose_shipment
from p2pnode.shards.sampling import DrawnBatches, base_chances, sampling
from p2pnode.shards.share import parse_split, split
from p2pnode.shards.visits import Past
from p2pnode.tasks.fashion_mnist import FashionMnist

CLASSES, PIXELS, HIDDEN = 10, 784, 64
SAMPLES, TESTS, PROBES, SHARD = 20_000, 5_000, 200, 100
SHARD_BYTES = SHARD * (PIXELS + 1)
MODEL_BYTES = 4 * (PIXELS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)


@dataclass(frozen=True)
class Plan:
    """One row of the table."""

    rule: str = "combined"  # or "none", or "unguarded": confidence without its guard
    split: str = "dirichlet:0.1"
    noise: str = "none"  # scattered: one label in ten is wrong; flipped: all labels of one shard in ten are
    seed: int = 1
    peers: int = 8
    rounds: int = 100
    steps: int = 10
    batch: int = 32
    rate: float = 0.1
    ship_every: int = 4
    merge_every: int = 10  # 0: never
    score_one_in: int = 8  # shards scored with the partner's weights at a merge; 1 is all of them
    mask: bool = True  # quarantined data are left out of training


class Swarm:
    """All peers of a run."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.rng = plan, Random(plan.seed)
        task = FashionMnist()
        self.x = task.data()["x"][:SAMPLES].reshape(-1, PIXELS).float() / 255
        self.test_x = task.test_data()["x"][:TESTS].reshape(-1, PIXELS).float() / 255
        self.test_y = task.test_data()["y"][:TESTS]
        self.true = task.data()["y"][:SAMPLES].numpy()
        self.shards, self.held = self._dealt()
        self.own = [set(held) for held in self.held]
        self.labels = self._noisy()
        generator = torch.Generator().manual_seed(plan.seed)
        shapes = [(PIXELS, HIDDEN), (1, HIDDEN), (HIDDEN, CLASSES), (1, CLASSES)]
        first = [
            torch.randn(shape, generator=generator) * (shape[0] ** -0.5 if shape[0] > 1 else 0) for shape in shapes
        ]
        self.weights = [tensor.repeat(plan.peers, 1, 1).requires_grad_() for tensor in first]
        self.seen = [Confidences(SAMPLES) for _ in range(plan.peers)]
        self.states: list[dict[int, DatumStates]] = [{} for _ in range(plan.peers)]
        self.visits: list[dict[int, dict[str, Past]]] = [{s: {} for s in held} for held in self.held]
        self.data_bytes = self.merge_bytes = 0

    def _dealt(self) -> tuple[list[np.ndarray], list[list[int]]]:
        parts = split(self.true, SAMPLES, self.plan.peers, parse_split(self.plan.split), self.plan.seed)
        shards: list[np.ndarray] = []
        held: list[list[int]] = []
        for part in parts:
            mixed = np.random.default_rng(self.plan.seed).permutation(part)
            pieces = np.array_split(mixed, max(1, round(len(part) / SHARD)))
            held.append(list(range(len(shards), len(shards) + len(pieces))))
            shards += pieces
        return shards, held

    def _noisy(self) -> np.ndarray:
        rng, labels = np.random.default_rng(self.plan.seed + 1), self.true.copy()
        wrong = np.zeros(SAMPLES, np.bool_)
        if self.plan.noise == "scattered":
            wrong = rng.random(SAMPLES) < 0.1
        elif self.plan.noise == "flipped":
            for number in rng.choice(len(self.shards), len(self.shards) // 10, replace=False):
                wrong[self.shards[number]] = True
        labels[wrong] = (labels[wrong] + rng.integers(1, CLASSES, wrong.sum())) % CLASSES
        return labels

    # ---- a run ----

    def run(self) -> dict[str, float | str | int]:
        for number in range(1, self.plan.rounds + 1):
            self._train(number)
            if self.plan.rule != "none" and number % self.plan.ship_every == 0:
                for peer in range(self.plan.peers):
                    self._ship(peer, float(number))
            if self.plan.merge_every and number % self.plan.merge_every == 0:
                self._merge(number)
        return self._row()

    def _train(self, number: int) -> None:
        batches = [self._batches(peer, number) for peer in range(self.plan.peers)]
        labels = torch.from_numpy(self.labels)
        for _ in range(self.plan.steps):
            drawn = [one.next() for one in batches]
            places, weights = torch.stack([d[0] for d in drawn]), torch.stack([d[1] for d in drawn])
            outputs = self._outputs(self.x[places])
            losses = functional.cross_entropy(outputs.flatten(0, 1), labels[places].flatten(), reduction="none")
            (losses.view_as(weights) * weights).mean(1).sum().backward()
            with torch.no_grad():
                for tensor in self.weights:
                    tensor -= self.plan.rate * tensor.grad
                    tensor.grad = None
            for peer, where in enumerate(places):
                self.seen[peer].note(where.numpy(), label_confidence(outputs[peer], labels[where]).numpy())

    def _batches(self, peer: int, number: int) -> DrawnBatches:
        held = self.held[peer]
        samples = np.concatenate([self.shards[s] for s in held])
        received = np.concatenate([np.full(len(self.shards[s]), s not in self.own[peer]) for s in held])
        fresh = [
            np.ones(len(self.shards[s]), np.float32) if s not in self.states[peer] else self._chances(peer, s)
            for s in held
        ]
        how = sampling(base_chances(self.labels[samples], received), np.concatenate(fresh))
        return DrawnBatches(
            torch.from_numpy(samples), how, self.plan.batch, seed=self.plan.seed * 1000 + peer + 8 * number
        )

    def _chances(self, peer: int, shard: int) -> np.ndarray:
        """Quarantined data are left out; the reserve is for another benchmark."""
        return (
            (chances(self.states[peer][shard]) > 0).astype(np.float32)
            if self.plan.mask
            else np.ones(len(self.shards[shard]), np.float32)
        )

    def _ship(self, peer: int, now: float) -> None:
        rules = RouteRules(forget_seconds=50.0, failing_models=99 if self.plan.rule == "unguarded" else 3)
        rule = "confidence" if self.plan.rule == "unguarded" else self.plan.rule
        likeness = self._likeness()
        peers = [
            PeerView(
                str(other),
                str(other),
                self._counts(self.held[other]),
                likeness[peer][other],
                frozenset(map(str, self.held[other])),
            )
            for other in range(self.plan.peers)
            if other != peer
        ]
        mine = [
            ShardView(
                str(s), SHARD_BYTES, self.seen[peer].mean(self.shards[s]), self._counts([s]), self.visits[peer][s]
            )
            for s in self.held[peer]
        ]
        shipment = choose_shipment(mine, peers, 2 * SHARD_BYTES, now, self.rng, rule=rule, rules=rules)
        if shipment is not None:
            self._arrive(int(shipment.shard), peer, int(shipment.peer), now)

    def _arrive(self, shard: int, giver: int, to: int, now: float) -> None:
        """A copy with its history; the receiver's model says what it makes of it before training on it."""
        after = self.seen[giver].mean(self.shards[shard])
        past = {**self.visits[giver][shard], str(giver): Past(str(giver), 1, after, after, now)}
        self.data_bytes += len(self.shards[shard]) * (PIXELS + 1)
        self.held[to].append(shard)
        before = self._score(to, to, shard)
        self.visits[to][shard] = {**past, str(to): Past(str(to), 1, before, before, now)}

    def _merge(self, number: int) -> None:
        """Random pairs average; before that each scores some of its shards, in turn, with the other's weights."""
        order = self.rng.sample(range(self.plan.peers), self.plan.peers)
        for one, other in zip(order[::2], order[1::2], strict=True):
            for peer, visitor in ((one, other), (other, one)):
                for shard in self.held[peer]:
                    if (shard + number // self.plan.merge_every) % self.plan.score_one_in == 0:
                        self._score(peer, visitor, shard)
            with torch.no_grad():
                for tensor in self.weights:
                    tensor[one] = tensor[other] = (tensor[one] + tensor[other]) / 2
            self.merge_bytes += 2 * MODEL_BYTES

    def _score(self, peer: int, visitor: int, shard: int) -> float:
        """What `visitor`'s model makes of a shard at `peer`: into the states there, and its mean."""
        where = self.shards[shard]
        shares = label_confidence(self._one(visitor, self.x[where]), torch.from_numpy(self.labels[where])).numpy()
        before = self.states[peer].get(shard) or untouched(len(where))
        self.states[peer][shard] = scored(
            before, str(visitor), np.arange(len(where)), shares, self.seen[visitor].usual(), StateRules()
        )
        return float(shares.mean())

    # ---- what is measured ----

    def _row(self) -> dict[str, float | str | int]:
        with torch.no_grad():
            right = [self._accuracy(self._one(peer, self.test_x)) for peer in range(self.plan.peers)]
            mean = [tensor.mean(0) for tensor in self.weights]
            averaged = self._accuracy(torch.relu(self.test_x @ mean[0] + mean[1]) @ mean[2] + mean[3])
        flagged = np.zeros(SAMPLES, np.bool_)
        for states in self.states:
            for shard, state in states.items():
                flagged[self.shards[shard][state.quarantined]] = True
        wrong = self.labels != self.true
        return {
            "rule": self.plan.rule, "split": self.plan.split, "noise": self.plan.noise, "seed": self.plan.seed,
            "merge_every": self.plan.merge_every, "node": round(100 * float(np.mean(right)), 2),
            "worst": round(100 * min(right), 2), "averaged": round(100 * averaged, 2),
            "data_mb": round(self.data_bytes / 1e6, 2), "merge_mb": round(self.merge_bytes / 1e6, 2),
            "noise_precision": round(float((flagged & wrong).sum() / max(1, flagged.sum())), 3),
            "noise_recall": round(float((flagged & wrong).sum() / max(1, wrong.sum())), 3),
        }  # fmt: skip

    def _accuracy(self, outputs: Tensor) -> float:
        return float((outputs.argmax(1) == self.test_y).float().mean())

    def _outputs(self, x: Tensor) -> Tensor:
        first, first_bias, second, second_bias = self.weights
        return torch.bmm(torch.relu(torch.bmm(x, first) + first_bias), second) + second_bias

    def _one(self, peer: int, x: Tensor) -> Tensor:
        first, first_bias, second, second_bias = (tensor[peer].detach() for tensor in self.weights)
        return torch.relu(x @ first + first_bias) @ second + second_bias

    def _counts(self, shards: list[int]) -> np.ndarray:
        return np.bincount(self.labels[np.concatenate([self.shards[s] for s in shards])], minlength=CLASSES).astype(
            np.float64
        )

    def _likeness(self) -> list[list[float]]:
        """How alike the peers' answers to the probe are: cosines of centred probabilities."""
        with torch.no_grad():
            said = [torch.softmax(self._one(peer, self.test_x[:PROBES]), 1) for peer in range(self.plan.peers)]
        flat = torch.stack([(one - one.mean(0)).flatten() for one in said])
        unit = functional.normalize(flat, dim=1)
        return (unit @ unit.T).clamp(0, 1).tolist()
