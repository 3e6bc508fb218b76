"""One author of a delta set: the residual, what a round adds to it, and the entries that this node signs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...compression.codec import encode_delta
from ...compression.delta import SparseDelta
from ...compression.residual import record, take_levels
from ...compression.selector import Budget, Selector
from ...compression.weights import Floats, Units, norm_squared
from ...storage.checkpoints import Arrays
from ...wire.ids import Identity
from ..policy import RoundFacts, relative_change
from .bridges import BridgeDraft
from .entry import Chain, Entry, EntryFacts, Mark, sign_entry
from .heads import head_mark
from .options import DeltaSetOptions
from .set import DeltaSet
from .steering import Steering

MIN_ENTRIES = 256  # coordinates; a message with fewer consists mostly of its envelope
BYTES_EACH = 1.5  # of a coordinate, before the first one was sent
FRESH = 4  # rounds of the circle that may pass during training before an entry is discounted


@dataclass(frozen=True)
class Draft:
    """An entry before it is published: its delta, and what the residual will be afterwards."""

    delta: SparseDelta
    payload: bytes
    residual: Units
    trained: Mark
    facts: RoundFacts
    progress: float
    weight: tuple[int, float, float]  # G, γ, discount


class Author:
    """This node's own log in a set, and the progress that it has not sent yet."""

    def __init__(self, identity: Identity, options: DeltaSetOptions, size: int, selector: Selector) -> None:
        self.identity = identity
        self.options = options
        self.selector = selector
        self.residual: Units = np.zeros(size, np.int32)
        self.incarnation = 0
        self.rounds = 0
        self.values = 0  # coordinates in the latest entry
        self._bytes_each = BYTES_EACH  # of a single coordinate, smoothed
        self.steering = Steering(size)

    def draft(
        self, deltas: DeltaSet, begun: Floats, after: Floats, facts: RoundFacts, trained: Mark, now: Mark
    ) -> Draft:
        """Heavy. The entry for a round from `begun` to `after`; the set was at `trained` before it and is at `now`."""
        options, rules = self.options, deltas.rules
        progress = after - begun
        group = max(1, facts.peers)
        self.steering.measure(begun, progress, group)
        residual = record(self.residual, progress, options.beta or self.steering.beta)
        gamma = options.gamma or self.steering.gamma
        discount = discount_for(now.entries - trained.entries, group)
        budget = self._budget(group, rules.size, rules.max_entries, facts.byte_budget)
        taken = take_levels(residual, self.selector.select(residual, progress, budget, facts.loss), options.bits)
        delta = taken.delta(gamma / group * discount)
        norm = max(1, isqrt(norm_squared(delta.values)))
        if norm >= rules.max_norm_units:  # the manifest's bound: what exceeds it is lost
            discount *= 0.99 * rules.max_norm_units / norm
            delta = taken.delta(gamma / group * discount)
        taken.leave(residual)
        payload = encode_delta(delta)
        self.selector.sent(len(delta), len(payload))
        weight = (group, gamma, discount)
        return Draft(delta, payload, residual, trained, facts, relative_change(begun, after), weight)

    def _budget(self, group: int, size: int, maximum: int, byte_budget: int | None) -> Budget:
        """What the next entry may carry: the density's share within the bytes; the maximum while this node is alone."""
        if group == 1:
            count = maximum
        else:
            density = self.options.density or self.steering.density(group)
            wanted = max(MIN_ENTRIES, round(density * size))
            affordable = wanted if byte_budget is None else int(byte_budget / self._bytes_each)
            count = max(1, min(maximum, wanted, affordable))
        scarcity = min(1.0, count * self._bytes_each / byte_budget) if byte_budget else 0.0
        return Budget(count, maximum, self.options.bits, scarcity)

    def chain(self, deltas: DeltaSet) -> Chain:
        """This node's own log, or a new one when a fork of the old one was proved."""
        chain = Chain(self.identity.peer_id, self.incarnation)
        while chain in deltas.log.exclusions:
            chain = chain._replace(incarnation=chain.incarnation + 1)
        self.incarnation = chain.incarnation
        return chain

    def empty_entry(self, deltas: DeltaSet) -> Entry:
        """The next entry of this node's log, empty and not signed."""
        chain, rules = self.chain(deltas), deltas.rules
        place = deltas.log.next_place(chain)
        return Entry(rules.lineage, rules.model, *chain, *place, published=head_mark(deltas.heads))

    def sign(self, draft: Draft, deltas: DeltaSet) -> Entry:
        """The draft as the next entry of this node's log."""
        group, gamma, discount = draft.weight
        facts = draft.facts
        return sign_entry(
            self.identity,
            msgspec.structs.replace(
                self.empty_entry(deltas),
                trained=draft.trained,
                steps=facts.steps,
                group=group,
                gamma=gamma,
                discount=discount,
                facts=EntryFacts(facts.loss, facts.samples, draft.progress, round=self.rounds),
                payload=draft.payload,
                hint=self.selector.hint,
            ),
        )

    def sign_bridge(self, bridge: BridgeDraft, deltas: DeltaSet) -> Entry:
        """A bridge or a union as the next entry of this node's log. The residual does not change."""
        empty, payload = self.empty_entry(deltas), encode_delta(bridge.delta)
        return sign_entry(
            self.identity,
            msgspec.structs.replace(
                empty, kind=bridge.kind, other=bridge.other, trained=empty.published, payload=payload
            ),
        )

    def published(self, draft: Draft) -> None:
        """Takes over the draft's residual, since the draft is now an entry of the set."""
        self.residual = draft.residual
        self.steering.published(draft.delta)
        self.values = len(draft.delta)
        self.rounds += 1
        if len(draft.delta) and self.selector.single:
            self._bytes_each += (len(draft.payload) / len(draft.delta) - self._bytes_each) / 4

    def move(self, incarnation: int) -> None:
        """Go on in another set, with a new log. The residual comes along."""
        self.incarnation = incarnation
        self.steering.jumped()

    def state(self) -> Arrays:
        """All that `restore` needs."""
        numbers = np.array([self.incarnation, self.rounds], np.int64)
        return {"residual": self.residual, "numbers": numbers, **self.steering.state()}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on from `state`; ValueError when it is of another model."""
        residual, numbers = state["residual"], state["numbers"]
        if residual.shape != self.residual.shape:
            raise ValueError("the state is of another model")
        self.steering.restore(state)
        self.residual = residual.astype(np.int32)
        self.incarnation, self.rounds = int(numbers[0]), int(numbers[1])


def discount_for(staleness: int, group: int) -> float:
    """The factor on an entry that was trained from old weights. The author decides it, so it is the same everywhere."""
    return min(1.0, FRESH * group / max(1, staleness))
