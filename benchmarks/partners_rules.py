"""How peers find partners, by rule: who shares a circle, and which partners a peer has after a round.

Peers see each other's fingerprints as in a run: taken of the weights right after training, before merging, and known to
others from then on. Before anything is shared each peer trains alone for a moment, which is not counted; circles are
drawn by the fingerprints of that, and stay.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from benchmarks.virtualpeers import Partners, Peer, VirtualPeers
from p2pnode.compression.weights import Floats
from p2pnode.similarity.annealing import bridge_rate, progress_of
from p2pnode.similarity.communities import Communities, Dendrogram, grow
from p2pnode.similarity.fingerprint import Row, read_fingerprint, similarities, similarity_table
from p2pnode.similarity.partners import Candidate, Home, PartnerSettings, choose_partners
from p2pnode.training.fingerprinter import Fingerprinter
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.ids import PeerId
from p2pnode.wire.run import Aim

ALONE = 40  # local steps before circles are drawn
FINGERPRINT_EVERY = 5  # rounds; as often communities are looked at anew
SECONDS_PER_STEP = 0.1  # for round trips, which partners are weighed by

Drawing = Literal["random", "similar", "dissimilar", "within", "across"]


@dataclass(frozen=True)
class Rule:
    """`circles`: how they are drawn, within and across communities among it. `picks`: how a peer chooses partners."""

    circles: Drawing
    picks: Literal["random", "similar", "dissimilar", "community"]
    aim: Aim = "shared"
    settings: PartnerSettings = field(default_factory=PartnerSettings)
    quicker: float = 1.0  # annealing, than the package's
    by_labels: bool = False  # as if fingerprints showed exactly which peers have similar labels
    often: float = 1.0  # bridges, times the package's rate
    everyone: bool = False  # without circles, all peers are home, not the community


def first_fingerprints(model_host: ModelHost, parts: list[np.ndarray], genesis: Floats, seed: int) -> list[Row]:
    """Fingerprints of models that each peer trained alone for a moment."""
    taken, taker = [], Fingerprinter(model_host, seed)
    for number, part in enumerate(parts):
        trainer = Trainer(model_host, part, seed=seed * 1000 + number)
        taken.append(fingerprint(taker, trainer, trainer.steps(genesis, ALONE).weights))
    return taken


def fingerprint(taker: Fingerprinter, trainer: Trainer, weights: Floats) -> Row:
    return read_fingerprint(taker.take(trainer, weights, lambda: 0.0))


def draw_circles(how: Drawing, rows: list[Row], size: int, rng: random.Random) -> list[str]:
    """The name of each peer's circle."""
    count = max(1, len(rows) // size)
    groups: Sequence[Sequence[int] | np.ndarray]
    if how in ("similar", "dissimilar"):
        groups = _in_turn(similarity_table(np.stack(rows)) * (1 if how == "similar" else -1), count, rng)
    else:
        tree = grow({PeerId(f"{number:03d}"): row for number, row in enumerate(rows)})
        order = [int(peer) for peer in tree.leaves]
        if how == "random":
            rng.shuffle(order)
        groups = [order[n::count] for n in range(count)] if how == "across" else np.array_split(order, count)
    names = {int(number): f"circle {place}" for place, group in enumerate(groups) for number in group}
    return [names[number] for number in range(len(rows))]


def _in_turn(liking: np.ndarray, count: int, rng: random.Random) -> list[list[int]]:
    """Circles take turns; each takes the peer that is left and suits its members most."""
    left = list(range(len(liking)))
    rng.shuffle(left)
    groups = [[left.pop()] for _ in range(count)]
    while left:
        for group in groups[: len(left)]:
            best = max(left, key=lambda peer: float(liking[peer, group].mean()))
            group.append(best)
            left.remove(best)
    return groups


class Choosing:
    """The choices of all peers of a run, by one rule. Put `choose` in the swarm's place for it."""

    def __init__(self, swarm: VirtualPeers, model_host: ModelHost, rule: Rule, rows: list[Row]) -> None:
        self.rows: dict[PeerId, Row] = {
            PeerId(peer.identity.peer_id): row for peer, row in zip(swarm.peers, rows, strict=True)
        }
        self._swarm = swarm
        self._rule = rule
        self._taker = Fingerprinter(model_host, swarm.plan.seed)
        self._peers = {PeerId(peer.identity.peer_id): peer for peer in swarm.peers}
        self._rounds = dict.fromkeys(self._peers, 0)
        self._met: dict[PeerId, dict[PeerId, int]] = {peer: {} for peer in self._peers}
        self._tree: tuple[float, Dendrogram] = (0.0, grow(self.rows))

    @property
    def progress(self) -> float:
        """How far the annealing is by now."""
        age = self._swarm.now / self._swarm.plan.mean_steps
        return progress_of(self._rule.quicker * age, self._rule.aim)

    def choose(self, peer: Peer) -> Partners:
        me = PeerId(peer.identity.peer_id)
        self._rounds[me] += 1
        if self._rounds[me] % FINGERPRINT_EVERY == 0 and not self._rule.by_labels:
            self.rows[me] = fingerprint(self._taker, peer.trainer, peer.trained)
        return self._by_community(peer, me) if self._rule.picks == "community" else self._by_similarity(peer, me)

    def _by_community(self, peer: Peer, me: PeerId) -> Partners:
        communities, now = self.communities(), self._rounds[me]
        circles = peer.policy.can.circles is not None
        if circles or self._rule.everyone:
            members = {PeerId(mate.identity.peer_id) for mate in self._swarm.mates(peer)}
        else:
            members = set(communities.members(communities.of[me])) - {me}
        home = Home(me, frozenset(members), bridge_rate(self.progress, self._rule.often))
        alike = self._alike(me)
        table = [
            Candidate(
                id, self._met[me].get(id), self._round_trip(peer, other), self._rate(peer, other), similarity=alike[id]
            )
            for id, other in self._peers.items()
            if other is not peer
        ]
        chosen = choose_partners(table, communities, now, peer.rng, home, self._rule.settings)
        chosen = chosen[: self._swarm.plan.partners]
        self._met[me].update({choice.peer: now for choice in chosen})
        bridges = [self._peers[choice.peer] for choice in chosen if choice.bridge and circles]
        return Partners([self._peers[choice.peer] for choice in chosen if not (choice.bridge and circles)], bridges)

    def _by_similarity(self, peer: Peer, me: PeerId) -> Partners:
        """Choose bridges by similarity, as many as by community: inside a circle everybody gets everything anyway."""
        count, mates = self._swarm.plan.partners, self._swarm.mates(peer)
        if peer.policy.can.circles is None:
            return Partners([self._preferred(peer, me, mates) for _ in range(count)])
        partners = peer.rng.sample(mates, min(count, len(mates)))
        beyond = [other for other in self._swarm.peers if other.circle != peer.circle]
        at_random = self._rule.settings.explore * len(beyond) / (len(self._peers) - 1)
        if not beyond or peer.rng.random() >= bridge_rate(self.progress, self._rule.often) + at_random:
            return Partners(partners)
        return Partners(partners[: count - 1], [self._preferred(peer, me, beyond)])

    def _preferred(self, peer: Peer, me: PeerId, among: list[Peer]) -> Peer:
        if self._rule.picks == "random":
            return peer.rng.choice(among)
        alike, sign = self._alike(me), 1 if self._rule.picks == "similar" else -1
        return max(among, key=lambda other: sign * alike[PeerId(other.identity.peer_id)])

    def communities(self) -> Communities:
        """The communities as everybody sees them: the tree is grown anew now and then."""
        grown, _ = self._tree
        if self._swarm.now - grown >= FINGERPRINT_EVERY * self._swarm.plan.mean_steps:
            self._tree = self._swarm.now, grow(self.rows)
        return self._tree[1].cut(self.progress)

    def _alike(self, me: PeerId) -> Mapping[PeerId, float]:
        found = similarities(self.rows[me], np.stack(list(self.rows.values())))
        return dict(zip(self.rows, found.tolist(), strict=True))

    def _round_trip(self, peer: Peer, other: Peer) -> float:
        return 2 * SECONDS_PER_STEP * self._swarm.latency(peer, other)

    def _rate(self, peer: Peer, other: Peer) -> float | None:
        per_byte = self._swarm.per_byte(peer, other)
        return 1 / (SECONDS_PER_STEP * per_byte) if per_byte else None
