"""Bridges between circles that have a delta set each: what is asked, answered and published. Pure.

ask      where did your circle change most since mine last compared itself with it?
answer   there, and these are our weights
publish  half the difference, as an ordinary entry of my circle that leaves my residual alone
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated

import msgspec

from ...compression.codec import CODECS, RICE, decode_delta, encode_delta
from ...compression.delta import SparseDelta
from ...compression.residual import within
from ...wire.types import Hash, decoded
from .author import Author
from .bridge_deltas import bridge_delta, bridge_entries, latest, most_changed, rounds_since, sample
from .entry import BRIDGE, UNION, Entry, delta_of, sign_entry
from .log import EntrySet
from .retention import KEPT
from .set import DeltaSet


class Question(msgspec.Struct, frozen=True, array_like=True):
    """Where did the weights of `lineage` change most in its last `rounds` rounds, and what are they there?"""

    lineage: Hash
    rounds: Annotated[int, msgspec.Meta(ge=1, le=KEPT)]


_decoder = msgspec.msgpack.Decoder(Question)


@dataclass(frozen=True)
class BridgeDraft:
    """A bridge to be published, unless another one to that lineage came within `pause` rounds; or a union, once."""

    other: bytes
    delta: SparseDelta
    pause: int = 0
    kind: int = BRIDGE

    def is_known(self, log: EntrySet) -> bool:
        """Whether the log has it already, of whomever."""
        if self.kind == UNION:
            return any(entry.kind == UNION and entry.other == self.other for entry in log)
        return rounds_since(log, self.other) < self.pause


class Bridges:
    """What a node asks and answers about its set. `deltas` gives the set as it is; the lock is its policy's."""

    def __init__(self, deltas: Callable[[], DeltaSet], lock: AbstractContextManager[object]) -> None:
        self._deltas = deltas
        self._lock = lock

    def ask(self, other: bytes, pause: int) -> bytes:
        """Light. What to ask a node of lineage `other`; nothing when our circle bridged there within `pause` rounds."""
        with self._lock:
            since = rounds_since(self._deltas().log, other)
        return b"" if since < pause else msgspec.msgpack.encode(Question(other, max(1, since)))

    def answer(self, request: bytes) -> bytes:
        """Heavy. What a node of another circle gets; nothing when it means another one. ValueError for nonsense."""
        asked, rules = decoded(_decoder, request, "bridge"), self._deltas().rules
        if asked.lineage != rules.lineage:
            return b""
        with self._lock:
            lately = latest(self._deltas().log, asked.rounds)
        changes = (delta_of(entry, rules) for entry in lately if entry.kind != BRIDGE)
        places = most_changed(rules.size, changes, bridge_entries(rules.size, rules.max_entries))
        with self._lock:
            told = sample(self._deltas().units, places)
        return encode_delta(told)

    def draft(self, other: bytes, answer: bytes, pause: int) -> BridgeDraft | None:
        """Heavy. What to publish after an answer; None when that is nothing. ValueError for nonsense."""
        rules = self._deltas().rules
        theirs = decode_delta(answer, rules.size, bridge_entries(rules.size, rules.max_entries))
        if not len(theirs):
            return None
        with self._lock:
            mine = self._deltas().units[theirs.indices]
        return BridgeDraft(other, within(bridge_delta(mine, theirs), rules.max_norm_units), pause)


def sign_bridge(author: Author, deltas: DeltaSet, bridge: BridgeDraft) -> Entry:
    """A bridge as the next entry of our log."""
    empty, payload = author.empty_entry(deltas), CODECS[RICE].encode(bridge.delta)
    return sign_entry(
        author.identity,
        msgspec.structs.replace(empty, kind=bridge.kind, other=bridge.other, trained=empty.published, payload=payload),
    )
