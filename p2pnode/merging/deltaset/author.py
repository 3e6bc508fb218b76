"""One author of a delta set: its residual, what a round adds to it, and the entries it signs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...compression.codec import encode_delta
from ...compression.delta import SparseDelta
from ...compression.residual import record, take_levels
from ...compression.selectors.magnitude import largest
from ...compression.selectors.scored import Scorer
from ...compression.weights import Floats, Units, norm_squared
from ...wire.ids import Identity
from ..policy import Arrays, RoundFacts, relative_change
from .bridges import BridgeDraft
from .entry import Chain, Entry, EntryFacts, Mark, sign_entry
from .heads import head_mark
from .set import DeltaSet
from .state import DeltaSetOptions
from .steering import Steering

MIN_ENTRIES = 256  # below this a message is mostly envelope
BYTES_EACH = 1.5  # of a sent coordinate, before one was sent
FRESH = 4  # rounds of the circle that may pass during training before an entry is discounted


@dataclass(frozen=True)
class Draft:
    """An entry to be: its delta, and what the residual is once it is published."""

    delta: SparseDelta
    payload: bytes
    residual: Units
    trained: Mark
    facts: RoundFacts
    progress: float
    weight: tuple[int, float, float]  # G, γ, discount


class Author:
    """This node's own log in a set, and the progress it has not told yet."""

    def __init__(
        self, identity: Identity, tuning: DeltaSetOptions, layers: Sequence[int], scorer: Scorer | None = None
    ) -> None:
        size = sum(layers)
        self.identity = identity
        self.tuning = tuning
        self.scorer = scorer  # None: the largest magnitudes go
        self.residual: Units = np.zeros(size, np.int32)
        self.incarnation = 0
        self.rounds = 0
        self.values = 0  # weights in our latest entry
        self._bytes_each = BYTES_EACH  # of a single coordinate that is sent, smoothed
        self.steering = Steering(size)

    def draft(
        self, deltas: DeltaSet, begun: Floats, after: Floats, facts: RoundFacts, trained: Mark, now: Mark
    ) -> Draft:
        """Heavy. What a round from `begun` to `after` has to say; the set stood at `trained` then and does at `now`."""
        tuning, rules = self.tuning, deltas.rules
        progress = after - begun
        group = max(1, facts.peers)
        self.steering.measure(begun, progress, group)
        residual = record(self.residual, progress, tuning.beta or self.steering.beta)
        gamma = tuning.gamma or self.steering.gamma
        discount = discount_for(now.entries - trained.entries, group)
        k = self._entries(group, rules.size, rules.max_entries, facts.byte_budget)
        scorer, most = self.scorer, rules.max_entries
        if scorer is not None and facts.byte_budget:
            scorer.granulator.scarcity = min(1.0, k * self._bytes_each / facts.byte_budget)
        places = None if scorer is None else scorer.places(residual, progress, k, most, tuning.bits, facts.loss)
        taken = take_levels(residual, largest(residual, k) if places is None else places, tuning.bits)
        delta = taken.delta(gamma / group * discount)
        norm = max(1, isqrt(norm_squared(delta.values)))
        if norm >= rules.max_norm_units:  # the manifest's bound: what is beyond it is given up
            discount *= 0.99 * rules.max_norm_units / norm
            delta = taken.delta(gamma / group * discount)
        taken.leave(residual)
        payload = encode_delta(delta)
        if scorer is not None:
            scorer.sent(len(delta), len(payload))
        weight = (group, gamma, discount)
        return Draft(delta, payload, residual, trained, facts, relative_change(begun, after), weight)

    def _entries(self, group: int, size: int, most: int, budget: int | None) -> int:
        """How many coordinates to send: the density's share, as many as allowed while nobody is there to send to."""
        if group == 1:
            return most
        density = self.tuning.density or self.steering.density(group)
        wanted = max(MIN_ENTRIES, round(density * size))
        return max(1, min(most, wanted if budget is None else min(wanted, int(budget / self._bytes_each))))

    def chain(self, deltas: DeltaSet) -> Chain:
        """Our own log; a new one when the old was lost and others know more of it, or a fork of it was proved."""
        chain = Chain(self.identity.peer_id, self.incarnation)
        while chain in deltas.log.exclusions:
            chain = chain._replace(incarnation=chain.incarnation + 1)
        self.incarnation = chain.incarnation
        return chain

    def empty_entry(self, deltas: DeltaSet) -> Entry:
        """The next entry of our log, with nothing in it yet and not signed."""
        chain, rules = self.chain(deltas), deltas.rules
        place = deltas.log.next_place(chain)
        return Entry(rules.lineage, rules.model, *chain, *place, published=head_mark(deltas.heads))

    def sign(self, draft: Draft, deltas: DeltaSet) -> Entry:
        """A draft as the next entry of our log."""
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
                hint=b"" if self.scorer is None else self.scorer.layer_bytes,
            ),
        )

    def sign_bridge(self, bridge: BridgeDraft, deltas: DeltaSet) -> Entry:
        """A bridge or a union as the next entry of our log; the residual does not change."""
        empty, payload = self.empty_entry(deltas), encode_delta(bridge.delta)
        return sign_entry(
            self.identity,
            msgspec.structs.replace(
                empty, kind=bridge.kind, other=bridge.other, trained=empty.published, payload=payload
            ),
        )

    def published(self, draft: Draft) -> None:
        """The draft is an entry of the set now."""
        self.residual = draft.residual
        self.steering.published(draft.delta)
        self.values = len(draft.delta)
        self.rounds += 1
        if len(draft.delta) and (self.scorer is None or self.scorer.single):
            self._bytes_each += (len(draft.payload) / len(draft.delta) - self._bytes_each) / 4

    def move(self, incarnation: int) -> None:
        """On to another set: a log of its own there; what was not told yet comes along."""
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
    """Less weight for what was trained from weights that are long past; decided by the author, once."""
    return min(1.0, FRESH * group / max(1, staleness))
