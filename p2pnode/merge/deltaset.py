"""The delta set: a circle's weights are the sum of signed sparse deltas, equal wherever the same entries are known.

Each round the node's progress goes into a residual e ← β·e + (x − s); its k largest entries, quantised and weighted
by γ/G, become an entry of the node's own log. Partners compare heads and pass on what is missing, whoever wrote it.
Training never waits: the next round starts from whatever A is by then, and progress that was not sent lives on in e
alone (docs/design.md).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..deltas.codec import CODECS, RICE
from ..deltas.delta import SparseDelta
from ..deltas.make import make_delta, record
from ..deltaset.accumulate import in_range
from ..deltaset.entry import (
    Chain,
    Claim,
    Entry,
    Mark,
    decode_entry,
    encode_entry,
    read_claim,
    rules_for,
    sign_entry,
)
from ..deltaset.entry import (
    Facts as EntryFacts,
)
from ..deltaset.heads import decode_heads, encode_heads, mark_of, missing
from ..deltaset.heads import merge as merge_heads
from ..deltaset.log import Change
from ..deltaset.retention import droppable
from ..deltaset.set import DeltaSet
from ..ids import PeerId
from ..weights import Floats, Units, norm_squared
from .leftout import LeftOut
from .policy import Arrays, Facts, Merged, Origin, relative_change
from .setmessages import (
    MAX_BODY_BYTES,
    MAX_CLAIMS,
    MAX_PROOFS,
    Deltas,
    decode_deltas,
    encode_deltas,
    pack_arrays,
    unpack_arrays,
)
from .setstate import set_arrays, set_from, tuning_of

DROP_EVERY = 16  # merges
MAX_PARTNERS = 64
EMA = 0.8  # of the read-out, per merge
MOST_KEPT = 1024  # entries of a chain, also of our own while nobody is there to have them
MIN_ENTRIES = 256  # below this a message is mostly envelope
FRESH = 4  # rounds of the circle that may pass during training before an entry is discounted


@dataclass(frozen=True)
class Draft:
    """An entry to be: its delta, and what the residual is once it is published."""

    delta: SparseDelta
    payload: bytes
    residual: Units
    trained: Mark
    facts: Facts
    progress: float
    weight: tuple[int, float, float]  # G, γ, discount


class DeltaSetPolicy:
    """One node's part in a delta set."""

    def __init__(self, origin: Origin) -> None:
        self._identity = origin.identity
        self._tuning = tuning_of(origin.settings)
        lineage = bytes.fromhex(origin.lineage)
        rules = rules_for(origin.model, lineage, origin.layout, origin.genesis, self._tuning.norm_ratio)
        self.set = DeltaSet(rules, origin.genesis)
        self.incarnation = 0
        self.rounds = 0
        self.needs_snapshot = False
        self._residual: Units = np.zeros(len(origin.genesis), np.int32)
        self._readout = self.set.weights()
        self._merged_at = self._readout
        self._came_in = 0
        self._left_out = LeftOut()
        self._merges = 0
        self._partners_heads: dict[PeerId, dict[Chain, int]] = {}
        self._trained = mark_of(self.set.heads)
        self._lock = threading.Lock()  # light and heavy methods run in two threads

    # ---- the round ----

    def start(self) -> Floats:
        with self._lock:
            self._trained = mark_of(self.set.heads)
            return self._left_out.weights(self.set)

    def readout(self) -> Floats:
        return self._readout.copy()

    def weights(self) -> Floats:
        """A, without whom this node leaves out."""
        with self._lock:
            return self._left_out.weights(self.set)

    def leave_out(self, peer: str) -> None:
        """Heavy. Keep a peer's entries out of what this node trains, evaluates and exports; the set stays as it is."""
        with self._lock:
            self._left_out.begin(self.set, peer)
            self._readout = self._merged_at = self._left_out.weights(self.set)

    @property
    def left_out(self) -> frozenset[str]:
        """Whom this node leaves out."""
        return self._left_out.peers

    def record(self, begun: Floats, after: Floats, facts: Facts) -> Draft:
        residual = record(self._residual, after - begun, self._tuning.beta)
        group = max(1, facts.peers)
        discount = self._discount(group)
        k = self._entries(group)
        delta, left = make_delta(residual, k, self._tuning.bits, self._tuning.gamma / group * discount)
        norm = max(1, isqrt(norm_squared(delta.values)))
        if norm >= self.set.rules.max_norm_units:  # the manifest's bound: what is beyond it is given up
            discount *= 0.99 * self.set.rules.max_norm_units / norm
            delta, left = make_delta(residual, k, self._tuning.bits, self._tuning.gamma / group * discount)
        payload = CODECS[RICE].encode(delta)
        weight = (group, self._tuning.gamma, discount)
        return Draft(delta, payload, left, self._trained, facts, relative_change(begun, after), weight)

    def _entries(self, group: int) -> int:
        """How many coordinates to send: the density's share, as many as allowed while nobody is there to send to."""
        most = self.set.rules.max_entries
        if group == 1:
            return most
        return min(most, max(MIN_ENTRIES, round(self._tuning.density * self.set.rules.size)))

    def _discount(self, group: int) -> float:
        """Less weight for what was trained from weights that are long past; decided by the author, once."""
        with self._lock:
            staleness = mark_of(self.set.heads).entries - self._trained.entries
        return min(1.0, FRESH * group / max(1, staleness))

    def publish(self, draft: object) -> bytes:
        assert isinstance(draft, Draft)
        with self._lock:
            if not in_range(self.set.units, draft.delta):
                return b""  # the weights have grown to the edge of the grid: nothing more is added
            change = self._add(self.set.add(self._signed(draft)))
            if change.verdict != "added":
                raise ValueError(f"own entry {change.verdict}: {change.why}")
            self._residual = draft.residual
            self.rounds += 1
            return encode_entry(change.added[0])

    def _chain(self) -> Chain:
        """Our own log; a new one when the old was lost and others know more of it, or a fork of it was proved."""
        chain = Chain(self._identity.peer_id, self.incarnation)
        while chain in self.set.log.exclusions:
            chain = chain._replace(incarnation=chain.incarnation + 1)
        self.incarnation = chain.incarnation
        return chain

    def _signed(self, draft: Draft) -> Entry:
        chain = self._chain()
        seq, previous = self.set.log.next_place(chain)
        group, gamma, discount = draft.weight
        facts = draft.facts
        return sign_entry(
            self._identity,
            Entry(
                lineage=self.set.rules.lineage,
                model=self.set.rules.model,
                peer=chain.peer,
                incarnation=chain.incarnation,
                seq=seq,
                previous=previous,
                trained=draft.trained,
                published=mark_of(self.set.heads),
                steps=facts.steps,
                group=group,
                gamma=gamma,
                discount=discount,
                facts=EntryFacts(facts.loss, facts.samples, draft.progress, round=self.rounds),
                payload=draft.payload,
            ),
        )

    def merge(self) -> Merged:
        with self._lock:
            now = self._left_out.weights(self.set)
            came_in, self._came_in = self._came_in, 0
            self._merges += 1
            if self._merges % DROP_EVERY == 0:
                self._drop_old()
        change = relative_change(self._merged_at, now)
        self._merged_at = now
        self._readout = (EMA * self._readout + (1 - EMA) * now).astype(np.float32)
        return Merged(f"{came_in} entries of others" if came_in else "nothing new", came_in, change)

    def _drop_old(self) -> None:
        """Forget entries that snapshots cover; our own stay until two partners have them."""
        heads = self.set.heads
        known = list(self._partners_heads.values())
        until = droppable(heads, heads, self._identity.peer_id, known)
        most = {chain: head - MOST_KEPT for chain, head in heads.items() if head > MOST_KEPT}
        self.set.log.drop(merge_heads(until, most))

    def _add(self, change: Change) -> Change:
        self._left_out.follow(change, self.set)
        return change

    # ---- exchange ----

    def ask(self, partner: PeerId) -> bytes:
        with self._lock:
            return encode_deltas(Deltas(self.set.log.digest(), encode_heads(self.set.heads)))

    def answer(self, partner: PeerId, request: bytes) -> bytes:
        asked = decode_deltas(request)
        with self._lock:
            digest = self.set.log.digest()
            if asked.digest == digest:
                self._note_heads(partner, self.set.heads)
                return encode_deltas(Deltas(digest))
            theirs = decode_heads(asked.heads)
            self._note_heads(partner, theirs)
            return encode_deltas(self._for(theirs, digest))

    def _note_heads(self, partner: PeerId, heads: Mapping[Chain, int]) -> None:
        self._partners_heads.pop(partner, None)
        self._partners_heads[partner] = dict(heads)
        while len(self._partners_heads) > MAX_PARTNERS:
            del self._partners_heads[next(iter(self._partners_heads))]

    def take(self, partner: PeerId, answer: bytes) -> bytes:
        told = decode_deltas(answer)
        with self._lock:
            for proof in told.proofs:
                self._add(self.set.add_proof(proof))
            self._find_forks(told.claims)
            for data in told.entries:
                change = self._add(self.set.add(decode_entry(data)))
                if change.verdict == "refused" and "left out" not in change.why:
                    raise ValueError(f"entry refused: {change.why}")
                self._came_in += len(change.added)
            self.needs_snapshot |= told.behind
            if not told.heads or told.digest == self.set.log.digest():
                return b""
            lacks = self._for(decode_heads(told.heads), self.set.log.digest())
        return encode_deltas(Deltas(lacks.digest, b"", lacks.entries, lacks.proofs)) if lacks.entries else b""

    def _for(self, theirs: Mapping[Chain, int], digest: bytes) -> Deltas:
        """Where we stand and what they lack, within the size of a message; the rest comes next time."""
        log, size = self.set.log, 0
        entries: list[bytes] = []
        for span in missing(theirs, self.set.heads):
            for entry in log.entries(span):
                data = encode_entry(entry)
                size += len(data)
                if size > MAX_BODY_BYTES and entries:
                    break
                entries.append(data)
        proofs = tuple(log.proofs.values())[:MAX_PROOFS]
        heads = self.set.heads
        claims = [claim for chain in heads for claim in log.claims(chain)] if heads == theirs else []
        behind = not log.can_serve(theirs)
        return Deltas(digest, encode_heads(heads), tuple(entries), proofs, behind, tuple(claims[:MAX_CLAIMS]))

    def _find_forks(self, claims: tuple[Claim, ...]) -> None:
        """Equal heads and unequal digests: somebody told us and our partner different things. Find out who."""
        chains: dict[Chain, list[Claim]] = {}
        for claim in claims:
            chains.setdefault(read_claim(claim).chain, []).append(claim)
        for chain, told in chains.items():
            self._add(self.set.compare_claims(told, chain))

    # ---- starting elsewhere, and again ----

    def snapshot(self) -> bytes:
        return pack_arrays(self._shared())

    def adopt(self, snapshot: bytes) -> None:
        arrays = unpack_arrays(snapshot)
        with self._lock:
            known = list(self.set.log)
            self.set = set_from(arrays, self.set.rules)
            for entry in known:
                self._add(self.set.add(entry))
            if not known:  # a newcomer, or one that lost its state: its log there is not known to the end
                own = [chain.incarnation for chain in self.set.heads if chain.peer == self._identity.peer_id]
                self.incarnation = max([self.incarnation, *(number + 1 for number in own)])
            self.needs_snapshot = False
            self._readout = self._merged_at = self._left_out.weights(self.set)

    def _shared(self) -> Arrays:
        with self._lock:
            return set_arrays(self.set)

    def state(self) -> Arrays:
        own = {"residual": self._residual, "readout": self._readout, **self._left_out.arrays()}
        numbers = np.array([self.incarnation, self.rounds], np.int64)
        return {**self._shared(), **own, "numbers": numbers}

    def restore(self, state: Mapping[str, npt.NDArray[Any]], journal: list[bytes]) -> None:
        try:
            residual, readout = state["residual"], state["readout"]
            numbers = state["numbers"]
            if residual.shape != self._residual.shape or readout.shape != self._readout.shape:
                raise ValueError("the state is of another model")
            with self._lock:
                self.set = set_from(state, self.set.rules)
                self._left_out.restore(state)
                self._residual, self._readout = residual.astype(np.int32), readout.astype(np.float32)
                self.incarnation, self.rounds = int(numbers[0]), int(numbers[1])
                for data in journal:
                    self.rounds += self._add(self.set.add(decode_entry(data))).verdict == "added"
                self._merged_at = self._left_out.weights(self.set)
        except (KeyError, IndexError, msgspec.DecodeError) as error:
            raise ValueError(f"the saved state is incomplete: {error}") from None
