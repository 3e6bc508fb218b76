"""The log of a queue: the steps that its owners applied to the model, one chain that all nodes agree on.

A step carries the delta that was applied, which items it was made of, and the hash of the weights after it, signed by
the owner of that term. Weights are integers on the grid, so a chain gives bit-equal weights at every node, and a step
can be taken back exactly.

Two owners at once make two branches. Of two branches the one whose last step ranks higher counts: by term, then lease,
then length, then hash. Every node that knows both takes the other branch's steps back. So what a deposed owner still
does counts for nobody, as soon as the new owner has made a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import msgspec
import numpy as np
from blake3 import blake3

from ...compression.codec import decode_delta
from ...compression.delta import SparseDelta
from ...compression.weights import MAX_UNITS, Units
from ...wire.ids import signed_by
from ...wire.types import Count, Hash, PeerText, Signature, decoded
from ..leases.lease import MAX_LEAP, LeaseName, Signer, Term

MAX_ITEMS = 64  # of one step
MAX_STEP_PAYLOAD = 768 << 10
MAX_STEP_BYTES = MAX_STEP_PAYLOAD + (16 << 10)
KEPT = 256  # latest steps that are kept, to take them back or to give them to others
_DOMAIN = b"p2pnode queue step 1\0"

Applied = dict[str, int]  # the number of each producer's latest applied item
Rank = tuple[int, bytes, int, bytes]


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One application of some items to the model's weights. A step without items begins a new term."""

    scope: Annotated[str, msgspec.Meta(max_length=128)]
    queue: LeaseName
    term: Term
    lease: Hash
    owner: PeerText
    index: Annotated[int, msgspec.Meta(ge=1, lt=1 << 40)]
    previous: Hash  # id of the step before; of the run's first weights for the first one
    items: Annotated[tuple[tuple[PeerText, Count], ...], msgspec.Meta(max_length=MAX_ITEMS)]
    state: Hash  # of the weights and of what was applied, after it
    payload: Annotated[bytes, msgspec.Meta(max_length=MAX_STEP_PAYLOAD)]  # the delta; empty where nothing changes
    signature: Signature = b""


class Position(msgspec.Struct, frozen=True, array_like=True):
    """A place in a chain: how many steps, and the id of the last one."""

    index: Count
    id: Hash


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Step)


def step_id(step: Step) -> bytes:
    return blake3(_content(step)).digest()


def encode_step(step: Step) -> bytes:
    return _encoder.encode(step)


def decode_step(data: bytes) -> Step:
    """ValueError when it is malformed or too large."""
    return decoded(_decoder, data, "step", MAX_STEP_BYTES)


def state_hash(weights: Units, applied: Applied) -> bytes:
    """What an owner vouches for: the weights, and which items are in them."""
    table = sorted(pair for pair in applied.items() if pair[1])
    return blake3(weights.tobytes()).update(_encoder.encode(table)).digest()


@dataclass(frozen=True)
class _Done:
    """A step of the chain, with what taking it back needs."""

    step: Step
    id: bytes
    delta: SparseDelta | None


class NotConnected(ValueError):
    """The steps follow one that is not known here: nobody's fault."""


class QueueLog:
    """The chain of one queue at one node, and the weights at its end."""

    def __init__(self, scope: str, queue: str, genesis: Units) -> None:
        self.scope = scope
        self.queue = queue
        self.weights = genesis.copy()
        self.applied: Applied = {}
        self.taken_back = 0  # steps of losing branches, since the start
        self._base = Position(0, state_hash(genesis, {}))  # before the first kept step
        self._base_rank: Rank = (-1, b"", 0, b"")
        self._done: list[_Done] = []

    # ---- where it is ----

    @property
    def head(self) -> Position:
        return Position(self._done[-1].step.index, self._done[-1].id) if self._done else self._base

    @property
    def rank(self) -> Rank:
        """Of two chains, the one with the higher rank counts."""
        return _rank(self._done[-1].step, self._done[-1].id) if self._done else self._base_rank

    @property
    def items(self) -> int:
        """How many items were applied in all."""
        return sum(self.applied.values())

    @property
    def term(self) -> int:
        return self.rank[0]

    def allows(self, lease: tuple[int, bytes]) -> bool:
        """Whether the owner by this lease may make the next step: one term has steps of one lease only.

        Two nodes may take the same term. Who finds the other's steps in its log needs a new term.
        """
        term, other, _, _ = self.rank
        return lease[0] > term or lease == (term, other)

    def producers(self, latest: int = 16) -> int:
        """How many nodes the latest items came from."""
        names: list[str] = []
        for done in reversed(self._done):
            names += [producer for producer, _ in done.step.items]
            if len(names) >= latest:
                break
        return len(set(names[:latest]))

    def applied_at(self, id: bytes, producer: str) -> int:
        """The number of a producer's latest item that was applied up to a step; 0 where that step is not known."""
        count = self.applied.get(producer, 0)
        for done in reversed(self._done):
            if done.id == id:
                return count
            count -= sum(who == producer for who, _ in done.step.items)
        return count if id == self._base.id else 0

    def positions(self) -> tuple[Position, ...]:
        """Some places of the chain, the end first, then ever fewer: another node finds one that both passed."""
        places, back = [self.head], 1
        while back < len(self._done):
            done = self._done[-1 - back]
            places.append(Position(done.step.index, done.id))
            back *= 2
        return (*places, self._base) if self._done else tuple(places)

    def after(self, positions: Iterable[Position], max_bytes: int) -> list[bytes] | None:
        """The steps after the first of these places that this chain passes, up to `max_bytes`, at least one if any.

        None when it passes none of them: then only a snapshot helps.
        """
        places = {self._base.id: 0, **{done.id: number + 1 for number, done in enumerate(self._done)}}
        common = next((places[position.id] for position in positions if position.id in places), None)
        if common is None:
            return None
        found: list[bytes] = []
        size = 0
        for done in self._done[common:]:
            data = encode_step(done.step)
            size += len(data)
            if found and size > max_bytes:
                break
            found.append(data)
        return found

    # ---- growing ----

    def make(
        self,
        me: Signer,
        lease: tuple[int, bytes],
        items: Sequence[tuple[str, int]] = (),
        delta: SparseDelta | None = None,
        payload: bytes = b"",
    ) -> Step:
        """The next step, signed. `add` puts it into the chain. ValueError when a weight would leave the grid.

        Without items it is the step by which a new owner cuts off what an owner before it may still do.
        """
        head, after = self.head, self.weights.copy()
        if delta is not None:
            _change(after, delta, 1)
        applied = {**self.applied, **dict(items)}
        step = Step(
            self.scope,
            self.queue,
            lease[0],
            lease[1],
            me.peer_id,
            head.index + 1,
            head.id,
            tuple(items),
            state_hash(after, applied),
            payload if delta is not None and len(delta) else b"",
        )
        return msgspec.structs.replace(step, signature=me.sign(_content(step)))

    def add(self, steps: Sequence[Step]) -> bool:
        """Take in steps that follow each other, the first of which follows a kept place of this chain.

        Returns whether the chain now ends with them: a branch that ranks lower changes nothing. ValueError when a step
        is invalid or follows an unknown one; then nothing has changed either.
        """
        steps = self._unknown(steps)
        if not steps:
            return False
        common = self._place_after(steps[0].previous)
        if common is None:
            raise NotConnected("the steps follow one that is not known here")
        if _rank(steps[-1], step_id(steps[-1])) <= self.rank:
            return False
        old = self._done[common:]
        for done in reversed(old):
            self._take_back(done)
        try:
            for step in steps:
                self._apply(step)
        except ValueError:
            for done in reversed(self._done[common:]):
                self._take_back(done)
            for done in old:
                self._put_back(done)
            raise
        self.taken_back += len(old)
        self._forget_old()
        return True

    def _unknown(self, steps: Sequence[Step]) -> Sequence[Step]:
        """The steps without those at their beginning that are in the chain already."""
        known = {done.id for done in self._done}
        first = next((number for number, step in enumerate(steps) if step_id(step) not in known), len(steps))
        return steps[first:]

    def _place_after(self, previous: bytes) -> int | None:
        """How many kept steps lie before a step that follows `previous`; None when that is not known."""
        if previous == self._base.id:
            return 0
        return next((number + 1 for number, done in enumerate(self._done) if done.id == previous), None)

    def _apply(self, step: Step) -> None:
        """Append a step; ValueError when it breaks a rule, and then nothing has changed."""
        self._check(step)
        applied = self._applied_after(step)
        delta = decode_delta(step.payload, len(self.weights), len(self.weights)) if step.payload else None
        if delta is not None:
            _change(self.weights, delta, 1)
        if state_hash(self.weights, {**self.applied, **applied}) != step.state:
            if delta is not None:
                _change(self.weights, delta, -1)
            raise ValueError("the weights after the step are not those that its owner signed")
        self.applied.update(applied)
        self._done.append(_Done(step, step_id(step), delta))

    def _check(self, step: Step) -> None:
        head, term = self.head, self.term
        owner = self._done[-1].step.owner if self._done else step.owner
        broken = (
            ((step.scope, step.queue) != (self.scope, self.queue), "the step is of another queue"),
            ((step.index, step.previous) != (head.index + 1, head.id), "the step does not follow the one before"),
            (not self.allows((step.term, step.lease)), "the step's term is not after that of the step before"),
            (step.term > max(0, term) + MAX_LEAP, "the step's term is too far ahead"),
            (step.term == term and self._done != [] and step.owner != owner, "two owners in one term"),
        )
        for wrong, reason in broken:
            if wrong:
                raise ValueError(reason)
        if not signed_by(step.owner, _content(step), step.signature):
            raise ValueError("the step is not signed by its owner")

    def _applied_after(self, step: Step) -> Applied:
        """The latest items of the step's producers; ValueError when an item is missing or was applied before."""
        after: Applied = {}
        for producer, seq in step.items:
            if seq != after.get(producer, self.applied.get(producer, 0)) + 1:
                raise ValueError("an item was applied before, or one before it was left out")
            after[producer] = seq
        return after

    def _take_back(self, done: _Done) -> None:
        if done.delta is not None:
            _change(self.weights, done.delta, -1)
        for producer, _ in done.step.items:
            self.applied[producer] -= 1
        self._done.pop()

    def _put_back(self, done: _Done) -> None:
        if done.delta is not None:
            _change(self.weights, done.delta, 1)
        for producer, seq in done.step.items:
            self.applied[producer] = seq
        self._done.append(done)

    def _forget_old(self) -> None:
        if len(self._done) > 2 * KEPT:
            last = self._done[-KEPT - 1]
            self._base, self._base_rank = Position(last.step.index, last.id), _rank(last.step, last.id)
            self._done = self._done[-KEPT:]

    # ---- as a whole ----

    def snapshot(self) -> bytes:
        """Everything a newcomer or a restart needs: the last step, the weights after it, and what was applied."""
        last = encode_step(self._done[-1].step) if self._done else b""
        tail = [encode_step(done.step) for done in self._done]
        weights = np.ascontiguousarray(self.weights).tobytes()
        return _encoder.encode((last, weights, sorted(self.applied.items()), tail))

    def adopt(self, data: bytes, saved_here: bool = False) -> bool:
        """Go on from a snapshot, if it ranks higher than this chain; returns whether it did.

        The last step's owner vouches for the weights by its signature. ValueError when anything does not fit. What was
        `saved_here` may have no steps yet.
        """
        try:
            last, raw, applied, tail = msgspec.msgpack.decode(
                data, type=tuple[bytes, bytes, list[tuple[PeerText, Count]], list[bytes]]
            )
        except msgspec.DecodeError as error:
            raise ValueError(f"malformed snapshot: {error}") from None
        if not last:
            return False
        step = decode_step(last)
        id = step_id(step)
        if _rank(step, id) <= self.rank:
            return False
        if (step.scope, step.queue) != (self.scope, self.queue):
            raise ValueError("the snapshot is of another queue")
        if step.term > max(0, self.term) + MAX_LEAP and not saved_here:
            raise ValueError("the snapshot's term is too far ahead")
        if len(raw) != 4 * len(self.weights):
            raise ValueError("the snapshot is of a model of another size")
        weights = np.frombuffer(raw, np.int32).copy()
        if state_hash(weights, dict(applied)) != step.state or not signed_by(
            step.owner, _content(step), step.signature
        ):
            raise ValueError("the snapshot's weights are not those that its last owner signed")
        kept = self._chain_of(tail, step, len(weights))
        self.weights, self.applied = weights, dict(applied)
        self._done = kept
        first = kept[0].step
        self._base = Position(first.index - 1, first.previous)
        self._base_rank = (-1, b"", 0, b"")
        return True

    def _chain_of(self, tail: Sequence[bytes], last: Step, size: int) -> list[_Done]:
        """The latest steps, each of which follows the one before; only the last one where they do not."""
        steps = [decode_step(data) for data in tail[-2 * KEPT :]]
        done = [
            _Done(step, step_id(step), decode_delta(step.payload, size, size) if step.payload else None)
            for step in (steps or [last])
        ]
        fits = all(after.step.previous == before.id for before, after in pairwise(done))
        if not fits or done[-1].id != step_id(last):
            raise ValueError("the snapshot's steps do not follow each other")
        return done


def _rank(step: Step, id: bytes) -> Rank:
    return step.term, step.lease, step.index, id


def _change(weights: Units, delta: SparseDelta, sign: int) -> None:
    """Add or take back a delta, in place; ValueError when a weight would leave the grid, and nothing changes then."""
    after = weights[delta.indices].astype(np.int64) + sign * delta.values.astype(np.int64)
    if len(after) and int(np.abs(after).max()) > MAX_UNITS:
        raise ValueError("a weight would leave the range that can be shared")
    weights[delta.indices] = after.astype(np.int32)


def _content(step: Step) -> bytes:
    return _DOMAIN + _encoder.encode(msgspec.structs.replace(step, signature=b""))
