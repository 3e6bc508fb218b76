"""Bridges between circles that have a delta set each: what is asked, answered and published. Pure.

ask      where my circle changed most since it last compared itself with yours, and places by chance
answer   your weights there
publish  half the difference, as an ordinary entry of my circle that leaves my residual alone
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Annotated

import msgspec
import numpy as np

from ..deltas.codec import CODECS, RICE, decode, encode
from ..deltas.delta import Indices, SparseDelta, dense_delta
from ..deltas.make import weighted
from ..deltaset.bridge import bridge_delta, coarse, count_of, drawn, index_set, most_changed
from ..deltaset.entry import BRIDGE, Chain, Entry, Hash, SetRules, delta_of, sign_entry
from ..deltaset.heads import Span, mark_of
from ..deltaset.log import Change
from ..deltaset.set import DeltaSet
from ..weights import norm_squared
from .payload import decode_places, encode_places
from .setauthor import Author

MAX_LINEAGES = 256  # that are remembered


class Question(msgspec.Struct, frozen=True, array_like=True):
    """What are the weights of `lineage` on these coordinates and on those drawn from the seed?"""

    lineage: Hash
    seed: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    changed: Annotated[bytes, msgspec.Meta(max_length=400_000)]  # places, in the codec's bytes


@dataclass(frozen=True)
class Asked:
    """A question on its way, and what of it must be known when the answer comes."""

    other: bytes  # the lineage that is asked
    places: Indices
    body: bytes
    group: int


@dataclass(frozen=True)
class BridgeDraft:
    """A bridge to be published."""

    other: bytes
    delta: SparseDelta
    group: int


class Bridges:
    """Where this circle stood when it last bridged to each other one, whoever of its members did."""

    def __init__(self) -> None:
        self._heads: dict[bytes, dict[Chain, int]] = {}

    def follow(self, change: Change, deltas: DeltaSet) -> None:
        """Entries came to count: note the bridges among them."""
        for entry in change.added:
            if entry.kind == BRIDGE:
                self._heads.pop(entry.other, None)
                self._heads[entry.other] = deltas.heads
        while len(self._heads) > MAX_LINEAGES:
            del self._heads[next(iter(self._heads))]

    def since(self, deltas: DeltaSet, other: bytes) -> list[Entry]:
        """The kept entries that came after the last bridge to `other`; all that are kept where none is known."""
        then = self._heads.get(other, {})
        spans = [Span(chain, then.get(chain, 0) + 1, head) for chain, head in deltas.heads.items()]
        return [entry for span in spans for entry in deltas.log.entries(span)]


def ask(rules: SetRules, since: list[Entry], other: bytes, group: int, seed: int) -> Asked:
    """The question for a node of lineage `other`."""
    count = count_of(rules.size, rules.max_entries)
    changed = most_changed(rules.size, (delta_of(entry, rules) for entry in since), count)
    body = msgspec.msgpack.encode(Question(other, seed, encode_places(rules.size, changed)))
    return Asked(other, _places(rules, changed, seed), body, group)


def answer(deltas: DeltaSet, request: bytes) -> bytes:
    """Our weights where they ask; nothing when our lineage is not the one they mean. ValueError for nonsense."""
    try:
        question = msgspec.msgpack.decode(request, type=Question)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"malformed bridge: {str(error)[:120]}") from None
    rules = deltas.rules
    changed = decode_places(question.changed, rules.size, count_of(rules.size, rules.max_entries))
    if question.lineage != rules.lineage:
        return b""
    places = _places(rules, changed, question.seed)
    return encode(dense_delta(coarse(deltas.units[places])))


def draft(rules: SetRules, mine: SparseDelta, asked: Asked, told: bytes) -> BridgeDraft | None:
    """What to publish after an answer where `mine` are our weights; None for nothing. ValueError for nonsense."""
    if not told:
        return None
    theirs = decode(told, len(asked.places), len(asked.places))
    if not theirs.dense:
        raise ValueError(f"{len(theirs)} weights where {len(asked.places)} were asked for")
    delta = bridge_delta(mine, np.array(theirs.values))
    norm, bound = max(1, isqrt(norm_squared(delta.values))), rules.max_norm_units
    if norm >= bound:
        delta = weighted(delta.size, delta.indices, np.array(delta.values), 0.99 * bound / norm)
    return BridgeDraft(asked.other, delta, asked.group) if len(delta) else None


def sign_bridge(author: Author, deltas: DeltaSet, bridge: BridgeDraft) -> Entry:
    """A bridge as the next entry of our log."""
    chain = author.chain(deltas)
    seq, previous = deltas.log.next_place(chain)
    mark = mark_of(deltas.heads)
    entry = Entry(
        lineage=deltas.rules.lineage,
        model=deltas.rules.model,
        peer=chain.peer,
        incarnation=chain.incarnation,
        seq=seq,
        previous=previous,
        kind=BRIDGE,
        other=bridge.other,
        trained=mark,
        published=mark,
        payload=CODECS[RICE].encode(bridge.delta),
    )
    return sign_entry(author.identity, entry)


def _places(rules: SetRules, changed: Indices, seed: int) -> Indices:
    count = count_of(rules.size, rules.max_entries)
    return index_set(changed, drawn(rules.size, seed, count), rules.max_entries)
