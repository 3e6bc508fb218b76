"""One author of a delta set: the residual, how much of it is trained on, and the entries that this node signs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ...compression.codec import encode_delta
from ...compression.delta import SparseDelta
from ...compression.residual import Cut, record, take_levels
from ...compression.selector import Budget, Selector
from ...compression.signs import MOST as SIGNS_MOST
from ...compression.signs import encode_signs, is_signs, take_signs
from ...compression.weights import MAX_UNITS, UNIT, Floats, Units, from_units, norm_squared
from ...storage.checkpoints import Arrays
from ...wire.ids import Identity
from ..policy import RoundFacts, relative_change
from .admission import Applicants, encode_admitted
from .bounds import Limits, cut_to
from .bridges import BridgeDraft
from .citations import Citations, encode_citations
from .entry import Chain, Entry, EntryFacts, Mark, SetRules, sign_entry
from .heads import Heads, total
from .options import DeltaSetOptions
from .retention import Retention
from .set import DeltaSet
from .steering import Steering, values_at

MIN_ENTRIES = 256  # coordinates; a message with fewer consists mostly of its envelope
BYTES_EACH = 1.5  # of a coordinate, before the first one was sent
SIGNS_STEP = 1.5  # γ of sign entries
SIGNS_RATE = 1.0  # of the task's learning rate: every coordinate is sent, so that the mean needs no longer steps
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

    def with_delta(self, delta: SparseDelta) -> Draft:
        """The same with another delta."""
        return replace(self, delta=delta, payload=encode_delta(delta))


class Terms(NamedTuple):
    """What an entry has to cite, the credit left after it (negative: it has to wait), and how large it may be."""

    cited: Citations
    credit: int
    limits: Limits


class Author:
    """This node's own log in a set, and the progress that it has not sent yet."""

    def __init__(
        self,
        identity: Identity,
        options: DeltaSetOptions,
        size: int,
        selector: Selector,
        layers: tuple[int, ...] = (),
    ) -> None:
        self.identity = identity
        self.options = options
        self.selector = selector
        self._layers = layers or (size,)
        self.residual: Units = np.zeros(size, np.int32)
        self.incarnation = 0
        self.rounds = 0
        self.held_back = False  # the latest round could not be published: the others have to publish first
        self.values = 0  # coordinates in the latest entry
        self._bytes_each = BYTES_EACH  # of a single coordinate, smoothed
        self.steering = Steering(size)
        self.retention = Retention(len(self.steering.places))
        self.applicants = Applicants()

    def kept(self, where: slice | npt.NDArray[np.int64]) -> Floats:
        """The part of the residual that is in the weights this node trains, κ·e, at some coordinates.

        It is all of it while this node may not publish: what it learns has nowhere else to be.
        """
        share = 1.0 if self.held_back else self.options.kappa or self.retention.kappa
        return self.residual[where] * np.float32(share * UNIT)

    def heard(self, delta: SparseDelta, weight: float) -> None:
        """An entry of another author came in, of this weight."""
        self.retention.heard(values_at(self.steering.places, delta), weight)

    def draft(
        self,
        deltas: DeltaSet,
        begun: Floats,
        after: Floats,
        facts: RoundFacts,
        marks: tuple[Mark, Mark],
        heard: tuple[Floats, float],
    ) -> Draft:
        """Heavy. The entry for a round from `begun` to `after`.

        `marks` say where the set was before the round and where it is now; `heard` is what others sent since the last
        entry (retention.py).
        """
        options, rules, (trained, now) = self.options, deltas.rules, marks
        progress = after - begun
        group = max(1, facts.peers)
        shared = begun[self.steering.places] - self.kept(self.steering.places)
        self.steering.measure(shared, progress[self.steering.places], group)
        residual = record(self.residual, progress, self._beta)
        self.retention.measure(from_units(residual[self.steering.places]), *heard)
        signs = self._sends_signs(rules.size, facts.byte_budget)
        gamma = options.gamma or (min(SIGNS_STEP, (group + 1) / 2) if signs else self.steering.step(group))
        discount = discount_for(now.entries - trained.entries, group)
        taken = self._cut(residual, progress, group, rules, facts) if not signs else take_signs(residual, self._layers)
        delta = taken.delta(gamma / group * discount)
        norm = max(1, isqrt(norm_squared(delta.values)))
        if norm >= rules.max_norm_units:  # the manifest's bound: what exceeds it is lost
            discount *= 0.99 * rules.max_norm_units / norm
            delta = taken.delta(gamma / group * discount)
        taken.leave(residual)
        payload = encode_signs(delta, self._layers) if signs else encode_delta(delta)
        if not signs:
            self.selector.sent(len(delta), len(payload))
        weight = (group, gamma, discount)
        return Draft(delta, payload, residual, trained, facts, relative_change(begun, after), weight)

    def _sends_signs(self, size: int, byte_budget: int | None) -> bool:
        """Whether the next entry has the sign of every coordinate: if the run wants that, and the link carries it."""
        return bool(self.options.signs) and size <= SIGNS_MOST and (byte_budget is None or size // 8 <= byte_budget)

    def _cut(self, residual: Units, progress: Floats, group: int, rules: SetRules, facts: RoundFacts) -> Cut:
        """The coordinates of the residual that the selector chooses, as levels."""
        budget = self._budget(group, rules, facts)
        return take_levels(residual, self.selector.select(residual, progress, budget, facts.loss), self.options.bits)

    def keep(self, begun: Floats, after: Floats) -> None:
        """Heavy. Add a round's progress to the residual, of which nothing is published now."""
        self.residual = record(self.residual, after - begun, self._beta)

    @property
    def _beta(self) -> float:
        """What is left of the residual after a round: nothing fades while this node may not publish."""
        return 1.0 if self.held_back else self.options.beta or self.steering.beta

    def _budget(self, group: int, rules: SetRules, facts: RoundFacts) -> Budget:
        """What the next entry may carry: the density's share within the bytes; the maximum while this node is alone."""
        maximum, byte_budget = rules.max_entries, facts.byte_budget
        if group == 1:
            count = maximum
        else:
            density = facts.density * (self.options.density or self.steering.density(group))
            wanted = max(MIN_ENTRIES, round(density * rules.size))
            affordable = wanted if byte_budget is None else int(byte_budget / self._bytes_each)
            count = max(1, min(maximum, wanted, affordable))
        scarcity = min(1.0, count * self._bytes_each / byte_budget) if byte_budget else 0.0
        return Budget(count, maximum, self.options.bits, scarcity)

    def chain(self, deltas: DeltaSet) -> Chain:
        """This node's own log, or a new one when the old one cannot go on: after a fork, or without its last entry."""
        chain = Chain(self.identity.peer_id, self.incarnation)
        while not deltas.log.can_go_on(chain):
            chain = chain._replace(incarnation=chain.incarnation + 1)
        self.incarnation = chain.incarnation
        return chain

    def terms(self, deltas: DeltaSet, heads: Heads) -> Terms:
        """What the next entry of this node's log cites if it knew `heads`, and how large it may be."""
        return Terms(*deltas.log.judge.cite(self.chain(deltas), heads))

    def empty_entry(self, deltas: DeltaSet, terms: Terms) -> Entry:
        """The next entry of this node's log, empty and not signed."""
        chain, rules = self.chain(deltas), deltas.rules
        place, published = deltas.log.next_place(chain), Mark(entries=total(deltas.heads))
        return Entry(
            rules.lineage,
            rules.model,
            *chain,
            *place,
            published=published,
            cited=encode_citations(terms.cited),
            credit=terms.credit,
            admits=encode_admitted(self.applicants.take(deltas.log.judge, chain)),
        )

    def cut(self, draft: Draft, terms: Terms) -> Draft:
        """The draft within its limits; what is cut stays in the residual."""
        signs = is_signs(draft.payload)
        delta = cut_to(draft.delta, terms.limits, self._layers, signs)
        if delta is draft.delta:
            return draft
        payload = encode_signs(delta, self._layers) if signs else encode_delta(delta)
        return replace(draft, delta=delta, payload=payload, residual=put_back(draft, delta))

    def keep_draft(self, draft: Draft) -> None:
        """Nothing of the draft is published: all of it stays in the residual."""
        self.residual = put_back(draft, None)
        self.held_back = True

    def sign(self, draft: Draft, deltas: DeltaSet, terms: Terms) -> Entry:
        """The draft as the next entry of this node's log."""
        group, gamma, discount = draft.weight
        facts = draft.facts
        return sign_entry(
            self.identity,
            msgspec.structs.replace(
                self.empty_entry(deltas, terms),
                trained=Mark(entries=draft.trained.entries),
                steps=facts.steps,
                group=group,
                gamma=gamma,
                discount=discount,
                facts=EntryFacts(facts.loss, facts.samples, draft.progress, round=self.rounds),
                payload=draft.payload,
                hint=self.selector.hint,
            ),
        )

    def sign_bridge(self, bridge: BridgeDraft, deltas: DeltaSet, terms: Terms) -> Entry:
        """A bridge or a union as the next entry of this node's log. The residual does not change."""
        delta = cut_to(bridge.delta, terms.limits, self._layers)
        empty, payload = self.empty_entry(deltas, terms), encode_delta(delta)
        return sign_entry(
            self.identity,
            msgspec.structs.replace(
                empty, kind=bridge.kind, other=bridge.other, trained=empty.published, payload=payload
            ),
        )

    def published(self, draft: Draft) -> None:
        """Takes over the draft's residual, since the draft is now an entry of the set."""
        self.residual = draft.residual
        self.held_back = False
        self.steering.published(draft.delta)
        self.values = len(draft.delta)
        self.rounds += 1
        if len(draft.delta) and self.selector.single and not draft.delta.dense:
            self._bytes_each += (len(draft.payload) / len(draft.delta) - self._bytes_each) / 4

    def move(self, incarnation: int) -> None:
        """Go on in another set, with a new log. The residual comes along."""
        self.incarnation = incarnation
        self.steering.jumped()

    def state(self) -> Arrays:
        """All that `restore` needs."""
        numbers = np.array([self.incarnation, self.rounds, self.held_back], np.int64)
        return {"residual": self.residual, "numbers": numbers, **self.steering.state(), **self.retention.state()}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on from `state`; ValueError when it is of another model."""
        residual, numbers = state["residual"], state["numbers"]
        if residual.shape != self.residual.shape:
            raise ValueError("the state is of another model")
        self.steering.restore(state)
        self.retention.restore(state)
        self.residual = residual.astype(np.int32)
        self.incarnation, self.rounds, self.held_back = int(numbers[0]), int(numbers[1]), bool(numbers[2])


def put_back(draft: Draft, published: SparseDelta | None) -> Units:
    """The residual after only `published` of a draft's delta was published, or nothing of it."""
    group, gamma, discount = draft.weight
    left = draft.delta.values.astype(np.float64)
    if published is not None:
        left -= published.values
    residual = draft.residual.astype(np.int64)
    residual[draft.delta.indices] += np.rint(left / (gamma / group * discount)).astype(np.int64)
    return np.clip(residual, -MAX_UNITS, MAX_UNITS).astype(np.int32)


def discount_for(staleness: int, group: int) -> float:
    """The factor on an entry that was trained from old weights. The author decides it, so it is the same everywhere."""
    return min(1.0, FRESH * group / max(1, staleness))
