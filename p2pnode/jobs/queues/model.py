"""One model of a queues job at this node: its queue's log and lease, and what this node trains for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import isfinite, isqrt

import numpy as np
from numpy.typing import NDArray

from ...compression.codec import decode_delta, encode_delta
from ...compression.delta import SparseDelta
from ...compression.residual import make_delta, record, within
from ...compression.weights import MAX_UNITS, Floats, Units, from_units, norm_squared, to_units
from ...merging.deltaset.pace import pace_for
from ...merging.readout import share_of_latest
from ...shards.rows import Rows
from ...tasks.task import Evaluation
from ...training.host import ModelHost
from ...training.trainer import Trainer, TrainResult
from ...wire.errors import Diverged
from ...wire.types import Seconds
from ..leases.lease import Signer
from ..leases.watch import LeaseTimes, LeaseWatch
from .items import MAX_PAYLOAD, Inbox, Item, Outbox
from .log import MAX_STEP_PAYLOAD, QueueLog
from .messages import OwnerFacts
from .plan import PlannedModel, QueuesSettings
from .priority import Plateau, QueueFacts

BITS = 2  # of a value in an item
LEAST = 256  # weights in an item
DENSITY = 0.15  # of the items of all other producers of a model together
BETA = 0.95  # of the residual that is kept at each item
KEEP = 3.0  # times the lease that an applied item is kept, at least
STALE: Seconds = 60.0  # what an owner said longer ago does not count
MAX_NORM = 0.5  # of an item, relative to the norm of the weights
OWN_NORM = 0.8  # of that: what this node sends at most, because the owner's weights may be others by then
SLOWEST = 1 / 64  # of the learning rate, after local steps have diverged again and again


@dataclass(frozen=True)
class SharedWeights:
    """A model's shared weights at some moment: what the heavy methods get, while the log goes on."""

    weights: Floats
    items: int  # that are applied to them
    producers: int  # of the latest items


class QueueModel:
    """One model and its queue. Methods marked heavy run in the compute thread, all others on the event loop."""

    def __init__(
        self,
        planned: PlannedModel,
        scope: str,
        me: Signer,
        host: ModelHost,
        rows: Rows | None,
        seed: int,
        settings: QueuesSettings,
        speed: float | None,
        now: Seconds,
    ) -> None:
        self.name = name = planned.name
        self.target = planned.target  # accuracy at which it is good enough
        self.host = host
        self.log = QueueLog(scope, name, to_units(host.genesis))
        self.watch = LeaseWatch(me, scope, name, LeaseTimes.lasting(settings.lease), now)
        self.inbox = Inbox(settings.capacity)
        self.outbox = Outbox(KEEP * settings.lease)
        self.trainer = Trainer(host, rows, seed, declared_speed=speed)
        self.evaluation: Evaluation | None = None  # by this node, while it owns the queue
        self.loss: float | None = None  # of this node's latest item
        self.room = True  # as the owner last said
        self.sent: tuple[bytes, int, Seconds] = (b"", 0, now)  # lease, number and time of the latest item it was sent
        self._facts: tuple[OwnerFacts, Seconds] | None = None
        self._plateau = Plateau()
        self._residual: Units = np.zeros(host.layout.size, np.int32)
        self._caution = 1.0  # factor on the learning rate; below 1 after local steps have diverged
        self._readout = host.genesis.copy()
        self._readout_items = 0  # that had been applied to the weights which the read-out was last moved to
        self._settings = settings
        self._me = me
        self._arrivals: list[Seconds] = []
        self._heads: dict[str, bytes] = {}  # the id of each member's last step

    @property
    def owner(self) -> str:
        """Who owns the queue as far as this node knows; "" when nobody does."""
        return "" if self.watch.lease is None else self.watch.lease.owner

    @property
    def done(self) -> int:
        """The number of this node's latest applied item."""
        return self.log.applied.get(self._me.peer_id, 0)

    def shared(self) -> SharedWeights:
        """The shared weights now."""
        return SharedWeights(from_units(self.log.weights), self.log.items, self.log.producers())

    def settle(self, members: Collection[str], now: Seconds) -> None:
        """The log or what members have of it has changed: forget the items that nothing can take back."""
        self._heads = {peer: id for peer, id in self._heads.items() if peer in members}
        everywhere = min(
            (self.log.applied_at(self._heads.get(peer, b""), self._me.peer_id) for peer in members), default=None
        )
        self.outbox.settle(self.done, self.done if everywhere is None else everywhere, now)

    def note_head(self, peer: str, id: bytes) -> None:
        """How far a member's log goes, as it says."""
        self._heads[peer] = id

    # ---- producing ----

    def density(self, producers: int) -> float:
        """The share of the weights that an item carries: together the producers send about as much, however many."""
        others = producers - 1
        return self._settings.density or (1.0 if others <= 0 else min(1.0, DENSITY / others))

    def rate(self, producers: int) -> float:
        """The factor on the learning rate: the mean of several producers has less noise, so steps may be larger."""
        return self._caution * (self._settings.rate or pace_for(0.0, producers).rate)

    def train(self, begun: SharedWeights) -> tuple[TrainResult, bytes]:
        """Heavy. Local steps from the shared weights, and the delta made of them as bytes; Diverged when they do."""
        self.move_readout(begun)
        try:
            result = self.trainer.steps(begun.weights, self._settings.steps, rate=self.rate(begun.producers))
        except Diverged:
            self._caution = max(SLOWEST, self._caution / 2)
            raise
        self._caution = min(1.0, self._caution * 1.1)
        size, density = len(begun.weights), self.density(begun.producers)
        residual = record(self._residual, result.weights - begun.weights, BETA)
        count = min(size, max(LEAST, round(density * size)))
        while True:
            delta, after = make_delta(residual, count, BITS, 1.0)
            payload = encode_delta(within(delta, int(OWN_NORM * _largest_norm(to_units(begun.weights)))))
            if len(payload) <= MAX_PAYLOAD:
                self._residual = after
                return result, payload
            count //= 2

    # ---- evaluating ----

    def move_readout(self, now: SharedWeights) -> Floats:
        """Heavy. The read-out, moved on to the shared weights: their mean over the last eighth of all items.

        It has less noise than they have. An item of every producer counts as a round does in a delta set.
        """
        new, producers = now.items - self._readout_items, max(1, now.producers)
        if new > 0:
            share = share_of_latest(now.items // producers, 1.0)
            self._readout += np.float32(1.0 - (1.0 - share) ** (new / producers)) * (now.weights - self._readout)
        self._readout_items = now.items
        return self._readout

    def evaluate(self, now: SharedWeights) -> Evaluation:
        """Heavy. How good the read-out is on the task's test data."""
        return self.trainer.evaluate(self.move_readout(now))

    # ---- owning ----

    def arrived(self, count: int, now: Seconds) -> None:
        """Some items came in."""
        self._arrivals = [at for at in self._arrivals if now - at < STALE] + [now] * count

    def check(self, items: Sequence[Item], weights: Units) -> str:
        """Heavy. What is wrong with items that came in, in words; "" when nothing is."""
        for item in items:
            if not isfinite(item.loss):
                return "an item's loss is not finite"
            if _bounded(item, weights) is None:
                return "an item cannot be read, or is larger than any honest one"
        return ""

    def combine(
        self, taken: Sequence[tuple[str, Item]], weights: Units, applied: int, producers: int
    ) -> tuple[SparseDelta, bytes]:
        """Heavy. What these items change, as a delta and as bytes; `applied` items are in the `weights`.

        Nodes that train at the same time find much the same, so an item counts 1 / `producers` times the gain; one that
        was trained on old weights counts less, 1 / (1 + items applied since).
        """
        total: NDArray[np.float64] = np.zeros(len(weights))
        for _, item in taken:
            delta = _bounded(item, weights)
            if delta is not None:
                stale = max(0, applied - item.trained)
                total[delta.indices] += min(1.0, self._settings.gain / max(1 + stale, producers)) * delta.values
        delta = _on_grid(total, weights)
        payload = encode_delta(delta)
        while len(payload) > MAX_STEP_PAYLOAD:  # only the largest changes fit
            kept = np.sort(np.argsort(-np.abs(delta.values), kind="stable")[: len(delta) // 2])
            delta = SparseDelta(len(weights), delta.indices[kept], delta.values[kept])
            payload = encode_delta(delta)
        return delta, payload

    def note_evaluation(self, found: Evaluation) -> None:
        """How good the shared weights are on the task's test data."""
        self.evaluation = found
        if found.accuracy is not None:
            self._plateau.note_accuracy(found.accuracy, found.samples, self.passes())
        else:
            self._plateau.note_loss(found.loss, self.passes())

    def passes(self) -> float:
        """Over the data, by all items that were applied."""
        samples = self.log.items * self._settings.steps * self.host.task.batch_size
        return samples / max(1, self.host.samples)

    # ---- for the score ----

    def own_facts(self, idle: float, now: Seconds) -> OwnerFacts:
        """What this node says as the owner."""
        accuracy = None if self.evaluation is None else self.evaluation.accuracy
        rate = sum(now - at < STALE for at in self._arrivals) / STALE
        passes, share = self._plateau.passes(self.passes()), min(1.0, max(0.0, idle))
        return OwnerFacts(len(self.inbox), share, passes, accuracy, rate, self._plateau.converged(self.passes()))

    def note_facts(self, facts: OwnerFacts, now: Seconds) -> None:
        self._facts = (facts, now)

    def facts(self, idle: float, now: Seconds) -> OwnerFacts | None:
        """What the owner says: this node itself, or what it last heard; None when that was long ago."""
        if self.watch.mine:
            return self.own_facts(idle, now)
        return self._facts[0] if self._facts is not None and now - self._facts[1] < STALE else None

    def converged(self, idle: float, now: Seconds) -> bool:
        """Whether it does not become better any more, as its owner says."""
        found = self.facts(idle, now)
        return found is not None and found.converged

    def good_enough(self, idle: float, now: Seconds) -> bool:
        """Whether it has reached its target, as its owner says."""
        found = self.facts(idle, now)
        return self.target is not None and found is not None and (found.accuracy or 0.0) >= self.target

    def score_facts(self, idle: float, now: Seconds) -> QueueFacts:
        """What the queue's score follows from."""
        found = self.facts(idle, now) or OwnerFacts(0, 0.0, 0.0)
        return QueueFacts(len(self._residual), found.length, self._settings.capacity, found.passes, found.idle)


def _bounded(item: Item, weights: Units) -> SparseDelta | None:
    """The item's delta; None where it cannot be read, or is larger than any honest one."""
    try:
        delta = decode_delta(item.payload, len(weights), len(weights))
    except ValueError:
        return None
    return delta if isqrt(norm_squared(delta.values)) <= _largest_norm(weights) else None


def _largest_norm(weights: Units) -> int:
    """The largest norm of an item that an owner with these weights takes."""
    return max(2, int(MAX_NORM * isqrt(max(1, norm_squared(weights)))))


def _on_grid(total: NDArray[np.float64], weights: Units) -> SparseDelta:
    """A sum as a delta on the grid that keeps every weight within it."""
    room = np.clip(np.rint(total), -MAX_UNITS - weights.astype(np.int64), MAX_UNITS - weights.astype(np.int64))
    indices = np.flatnonzero(room).astype(np.uint32)
    values = np.clip(room[indices], -MAX_UNITS, MAX_UNITS).astype(np.int32)
    return SparseDelta(len(weights), indices, values)
