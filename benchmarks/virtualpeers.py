"""Asynchronous peers on virtual time: real training, policies and messages; only clock and network are simulated.

Time is counted in local steps. A round of K ~ 1 + Poisson(λ−1) steps takes K. Then the node records, publishes, merges
what has arrived by then and begins the next round at once, while its exchange is under way: each message takes
`latency`. With `waits` it first waits for its answers, idle, and merges these too. Averaging needs that, because
otherwise it reads out weights that were just trained on its own data, which a delta set never does. Events happen in
the order of their times, so nobody ever sees a partner's later steps or passes on the same step twice.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from blake3 import blake3

from p2pnode.circles.founding import circle_lineage
from p2pnode.compression.weights import Floats, to_units
from p2pnode.jobs.train.job import SLOWEST
from p2pnode.jobs.train.steps import MOST as SLICES
from p2pnode.jobs.train.steps import split_steps
from p2pnode.merging.policy import MakePolicy, Policy, PolicySetup, RoundFacts
from p2pnode.merging.schedule import planned_rate
from p2pnode.similarity.annealing import bridge_rate, progress_of
from p2pnode.training.background import feed_gradients
from p2pnode.training.host import ModelHost
from p2pnode.training.rounds import local_steps, shortened
from p2pnode.training.trainer import Trainer, TrainResult
from p2pnode.wire.errors import Diverged
from p2pnode.wire.ids import Identity

CAP = 64  # steps in a round
GENESIS = bytes(32)


@dataclass(frozen=True)
class Plan:
    """The plan that all peers of a run share."""

    steps: int  # local steps each does
    mean_steps: float = 10.0  # λ, of a round
    partners: int = 3
    latency: float = 0.3  # of a message, in local steps
    waits: bool = False  # for its answers before it merges
    rate: float = 1.0  # factor on the task's learning rate
    decays: bool = False  # the rate falls towards the end, as in a run whose length is planned
    settle: int = 0  # own steps after which the first peer asks for a settling phase; 0: never
    circle: int = 0  # peers that share a delta set; 0: all do
    seed: int = 1

    def decay(self, at: int) -> float:
        """The factor on the learning rate at a step."""
        return planned_rate(at, self.steps if self.decays else 0)


@dataclass
class Peer:
    identity: Identity
    policy: Policy
    trainer: Trainer
    rng: random.Random
    circle: str = ""
    done: int = 0
    received: int = 0  # bytes
    bridges: int = 0
    rate: float = 1.0  # factor on the learning rate; lower after a round that diverged
    trained: Floats = field(default_factory=lambda: np.zeros(0, np.float32))  # x, after the last round


@dataclass(frozen=True)
class Partners:
    """The partners of a peer after a round: members of its circle, and peers of others, to bridge to."""

    inside: list[Peer]
    beyond: list[Peer] = field(default_factory=list)


class VirtualPeers:
    """One run. `run` brings every peer to the planned number of steps.

    `circles` names each peer's circle, where they are not just consecutive. `choose` returns a peer's partners; by
    default they are drawn at random. `latency` is that of a message between two peers, in local steps; `per_byte` what
    each byte of it adds.
    """

    def __init__(
        self,
        model_host: ModelHost,
        parts: Sequence[np.ndarray],
        make: MakePolicy,
        settings: Mapping[str, float],
        plan: Plan,
        genesis: Floats,
        circles: Sequence[str] = (),
    ) -> None:
        self.plan = plan
        self.now = 0.0
        self.choose: Callable[[Peer], Partners] = self.at_random
        self.latency: Callable[[Peer, Peer], float] = lambda one, other: plan.latency
        self.per_byte: Callable[[Peer, Peer], float] = lambda one, other: 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.peers = []
        for number, part in enumerate(parts):
            identity = Identity(blake3(f"peer {number} of run {plan.seed}".encode()).digest())
            circle = circles[number] if circles else f"circle {number // plan.circle}" if plan.circle else ""
            lineage = circle_lineage(GENESIS, circle).hex()
            origin = PolicySetup(
                to_units(genesis),
                identity,
                lineage,
                "main",
                model_host.layout.hash,
                settings,
                plan.seed,
                model_host.layout.layer_sizes,
                planned_steps=plan.steps if plan.decays else 0,
            )
            trainer = Trainer(model_host, part, seed=plan.seed * 1000 + number)
            self.peers.append(Peer(identity, make(origin), trainer, random.Random(plan.seed * 1000 + number), circle))

    def run(self) -> None:
        for peer in self.peers:
            self._round(peer)
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()

    def at(self, time: float, event: Callable[[], None]) -> None:
        """Let something happen at a time yet to come."""
        self._after(time - self.now, event)

    def _after(self, delay: float, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, event))

    def _round(self, peer: Peer) -> None:
        """Begin a round: what is learned is known when its time has passed."""
        pace = peer.policy.pace(len(self.mates(peer)) + 1)
        mean = shortened(self.plan.mean_steps, pace.steps)
        count = min(local_steps(mean, peer.rng, CAP), self.plan.steps - peer.done)
        if count <= 0:
            return
        slices = 1 if peer.policy.can.corrections is None else SLICES
        self._slice(peer, None, split_steps(count, slices), pace.rate * self.plan.rate)

    def _slice(self, peer: Peer, before: tuple[Floats, TrainResult] | None, counts: list[int], rate: float) -> None:
        """The next steps of a round, of which `before` were done, as the node does them (jobs/train/steps.py)."""
        if before is None:
            begun = weights = peer.policy.start()
        else:
            begun, weights = before[0], before[1].weights
            assert peer.policy.can.corrections is not None
            peer.policy.can.corrections.correct(begun, weights)
        try:
            made = peer.trainer.steps(
                weights, counts[0], rate=rate * peer.rate * self.plan.decay(peer.trainer.steps_done)
            )
        except Diverged:  # the round is lost, and the next one is more careful, as in jobs/train/job.py
            peer.rate = max(SLOWEST, peer.rate / 2)
            peer.done += sum(counts)
            peer.trained = begun
            self._after(counts[0], lambda: self._round(peer))
            return
        result = made if before is None else before[1].then(made)
        if len(counts) > 1:
            self._after(counts[0], lambda: self._slice(peer, (begun, result), counts[1:], rate))
            return
        feed_gradients(peer.policy.can.selector, peer.trainer, result.weights)
        facts = RoundFacts(result.steps, result.loss, result.samples, len(self.mates(peer)) + 1)
        self._after(counts[0], lambda: self._end(peer, begun, result.weights, facts))

    def _end(self, peer: Peer, begun: Floats, after: Floats, facts: RoundFacts) -> None:
        policy = peer.policy
        peer.rate = min(1.0, peer.rate * 1.1)
        policy.publish(policy.record(begun, after, facts))
        self._settle_if_due(peer, facts.steps)
        peer.done += facts.steps
        peer.trained = after
        if not self.plan.waits:
            policy.merge()
        partners = self.choose(peer)
        for other in partners.beyond:
            self._bridge(peer, other)
        if self.plan.waits:
            self._exchange(peer, partners.inside, lambda: self._merge_and_go_on(peer))
        else:
            self._exchange(peer, partners.inside, lambda: None)
            self._round(peer)

    def _settle_if_due(self, peer: Peer, steps: int) -> None:
        due = peer is self.peers[0] and peer.done < self.plan.settle <= peer.done + steps
        if due and peer.policy.can.settling is not None:
            peer.policy.can.settling.settle()

    def mates(self, peer: Peer) -> list[Peer]:
        """The others of a peer's circle."""
        return [other for other in self.peers if other is not peer and other.circle == peer.circle]

    def at_random(self, peer: Peer) -> Partners:
        """Anyone of the circle; now and then a peer of another circle instead of one of them."""
        mates, policy = self.mates(peer), peer.policy
        partners = peer.rng.sample(mates, min(self.plan.partners, len(mates)))
        beyond = [other for other in self.peers if other.circle != peer.circle]
        circles = policy.can.circles
        often = 0.0 if circles is None else circles.bridges.rate
        rate = bridge_rate(progress_of(peer.done / self.plan.mean_steps), often)
        if not beyond or peer.rng.random() >= rate:
            return Partners(partners)
        return Partners(partners[: self.plan.partners - 1], [peer.rng.choice(beyond)])

    def _bridge(self, peer: Peer, other: Peer) -> None:
        """Ask a peer of another circle for its weights, and publish half the way there."""
        policy, latency = peer.policy, self.latency(peer, other)
        assert policy.can.circles is not None
        bridges = policy.can.circles.bridges
        lineage, pause = circle_lineage(GENESIS, other.circle), len(self.mates(peer)) + 1
        question = bridges.ask(lineage, pause)

        def asked() -> None:
            other.received += len(question)
            assert other.policy.can.circles is not None
            answer = other.policy.can.circles.bridges.answer(question)
            self._after(latency, lambda: answered(answer))

        def answered(answer: bytes) -> None:
            peer.received += len(answer)
            draft = bridges.draft(lineage, answer, pause)
            peer.bridges += draft is not None and bool(policy.publish(draft))

        if question:
            self._after(latency, asked)

    def _merge_and_go_on(self, peer: Peer) -> None:
        peer.policy.merge()
        self._round(peer)

    def _exchange(self, peer: Peer, partners: list[Peer], then: Callable[[], None]) -> None:
        """With one partner after the other, so that nothing is fetched twice; then `then`.

        Ask, answer, push: three messages, each under way for a while; the next partner is asked after the answer.
        """
        if not partners:
            then()
            return
        partner, rest = partners[0], partners[1:]
        mine, theirs = peer.identity.peer_id, partner.identity.peer_id
        latency, per_byte = self.latency(peer, partner), self.per_byte(peer, partner)

        def asked() -> None:
            partner.received += len(request)
            answer = partner.policy.answer(mine, request)
            self._after(latency + len(answer) * per_byte, lambda: answered(answer))

        def answered(answer: bytes) -> None:
            peer.received += len(answer)
            push = peer.policy.take(theirs, answer)
            if push:
                self._after(latency + len(push) * per_byte, lambda: pushed(push))
            self._exchange(peer, rest, then)

        def pushed(push: bytes) -> None:
            partner.received += len(push)
            partner.policy.take(mine, push)

        request = peer.policy.ask(partner.identity.peer_id)
        self._after(latency + len(request) * per_byte, asked)


def in_step(
    model_host: ModelHost, parts: Sequence[np.ndarray], plan: Plan, genesis: Floats, every: int
) -> tuple[list[Peer], list[Floats]]:
    """Synchronous all-reduce: all do `every` steps, then take the mean. Bytes are those of a ring, in float32.

    Returns the peers and, for each, the read-out (EMA 0.8/0.2 of the means).
    """
    no_policy: Any = None  # an all-reduce needs none
    rng = random.Random()
    peers = [
        Peer(Identity(bytes([number]) * 32), no_policy, Trainer(model_host, part, plan.seed * 1000 + number), rng)
        for number, part in enumerate(parts)
    ]
    mean, readout = genesis, genesis
    for done in range(0, plan.steps, every):
        for peer in peers:
            rate = plan.rate * plan.decay(done)
            peer.trained = peer.trainer.steps(mean, min(every, plan.steps - done), rate=rate).weights
            peer.received += int(2 * (len(peers) - 1) / len(peers) * mean.nbytes)
        mean = np.asarray(np.mean([peer.trained for peer in peers], axis=0, dtype=np.float64), np.float32)
        readout = (0.8 * readout + 0.2 * mean).astype(np.float32)
    return peers, [readout] * len(peers)
