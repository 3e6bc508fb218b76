"""A small swarm with one shard, for the model checker: who there is, how it begins, what may happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from p2pnode.shards.handoff.state import (
    ClaimShard,
    HandoffEvent,
    HandoffStep,
    PutBytes,
    PutRecord,
    Record,
    ShardState,
    Write,
    restarted,
)
from p2pnode.shards.handoff.step import step
from p2pnode.wire.ids import Signer

NODES = ("a", "b", "c")
RUN, SHARD = "run", "0" * 32
Stepper = Callable[[Signer, ShardState, HandoffEvent], HandoffStep]


class Stamp:
    """Signs without a key: who may sign what is for other tests."""

    def __init__(self, name: str) -> None:
        self.peer_id = name

    def sign(self, message: bytes) -> bytes:
        return self.peer_id.encode()


SIGNERS = [Stamp(name) for name in NODES]


class Violation(AssertionError):
    """A promise was broken; the text tells in which state."""


@dataclass(frozen=True)
class Scope:
    """What may happen."""

    start: tuple[ShardState, ...]
    terms: int = 3
    copies: int = 1
    takeovers: bool = False
    faults: int = 0  # disks lost for good, or files lost
    max_states: int = 1 << 62


@dataclass
class Report:
    states: int = 0
    transitions: int = 0
    kill_points: int = 0  # places between two writes of one event where a crash was tried, in different local states
    settled: int = 0  # different contents of the disks from which the swarm was left to settle
    complete: bool = True


def some_bytes(*names: str) -> tuple[ShardState, ...]:
    """Nobody has claimed anything; these nodes have the bytes."""
    return tuple(ShardState(have=name in names) for name in NODES)


def replicated() -> tuple[ShardState, ...]:
    """a holds, b keeps and has said so, c has nothing."""
    first = step(SIGNERS[0], ShardState(have=True), ClaimShard(RUN, SHARD, ("a", "b"))).state
    certificate = first.record.highest
    kept = ShardState(Record(certificate, first.record.next_term, kept=True), have=True)
    return first, kept, ShardState()


def apply_write(record: Record, have: bool, write: Write) -> tuple[Record, bool]:
    if isinstance(write, PutRecord):
        return write.record, have
    return record, isinstance(write, PutBytes)


def after_crash(me: str, state: ShardState, writes: tuple[Write, ...], done: int) -> ShardState:
    """What a node finds on its disk when it died after `done` of the writes."""
    record, have = state.record, state.have
    for write in writes[:done]:
        record, have = apply_write(record, have, write)
    return restarted(me, record, have)


# Three nodes; terms 0, 1 and so on up to the number given. Complete within a minute on one busy core.
DEFAULT_SCOPES = {
    "a handoff": Scope(some_bytes("a"), terms=2),
    "three claims": Scope(some_bytes("a", "b", "c"), terms=2),
    "keepers and takeovers from the first claim on": Scope(some_bytes("a"), terms=2, copies=2, takeovers=True),
    "keepers, takeovers and a disk lost": Scope(replicated(), terms=2, copies=2, takeovers=True, faults=1),
}
