"""Bridges between circles that have a delta set each: what is asked, answered and published. Pure.

ask      where did your circle change most since mine last compared itself with it?
answer   there, and these are our weights
publish  half the difference, as an ordinary entry of my circle that leaves my residual alone
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Annotated

import msgspec
import numpy as np

from ..deltas.codec import CODECS, RICE, decode
from ..deltas.delta import Indices, SparseDelta
from ..deltas.make import weighted
from ..deltaset.bridge import bridge_delta, count_of, most_changed, rounds_since
from ..deltaset.entry import BRIDGE, Entry, Hash, SetRules, delta_of, sign_entry
from ..deltaset.heads import mark_of
from ..deltaset.retention import KEPT
from ..deltaset.set import DeltaSet
from ..weights import Units, norm_squared
from .setauthor import Author


class Question(msgspec.Struct, frozen=True, array_like=True):
    """Where did the weights of `lineage` change most in its last `rounds` rounds, and what are they there?"""

    lineage: Hash
    rounds: Annotated[int, msgspec.Meta(ge=1, le=KEPT)]


@dataclass(frozen=True)
class BridgeDraft:
    """A bridge to be published, unless another one to that lineage came within `pause` rounds."""

    other: bytes
    delta: SparseDelta
    pause: int


def question(deltas: DeltaSet, other: bytes, pause: int) -> bytes:
    """What to ask a node of lineage `other`; nothing when our circle's last bridge there is within `pause` rounds."""
    since = rounds_since(deltas.log, other)
    return b"" if since < pause else msgspec.msgpack.encode(Question(other, max(1, since)))


def read_question(request: bytes) -> Question:
    """ValueError for anything else."""
    try:
        return msgspec.msgpack.decode(request, type=Question)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"malformed bridge: {str(error)[:120]}") from None


def places(rules: SetRules, lately: list[Entry]) -> Indices:
    """Where these entries changed our weights most."""
    changes = (delta_of(entry, rules) for entry in lately if entry.kind != BRIDGE)
    return most_changed(rules.size, changes, count_of(rules.size, rules.max_entries))


def read_answer(told: bytes, rules: SetRules) -> SparseDelta:
    """Their weights where they changed most; ValueError for anything else."""
    return decode(told, rules.size, count_of(rules.size, rules.max_entries))


def draft(rules: SetRules, mine: Units, theirs: SparseDelta, other: bytes, pause: int) -> BridgeDraft:
    """What to publish where `mine` are our weights at the same places; within the norm an entry may have."""
    delta = bridge_delta(mine, theirs)
    norm, bound = max(1, isqrt(norm_squared(delta.values))), rules.max_norm_units
    if norm >= bound:
        delta = weighted(delta.size, delta.indices, np.array(delta.values), 0.99 * bound / norm)
    return BridgeDraft(other, delta, pause)


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
