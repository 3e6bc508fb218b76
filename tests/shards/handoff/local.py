"""One node of the model checker in one state, and what it can do from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from p2pnode.shards.handoff.certificate import Rank
from p2pnode.shards.handoff.state import ShardState

Sent = tuple[int, int, int]  # messages to each node, as bits
Outcome = tuple[int, Sent]  # the state after, messages sent
SILENCE: Sent = (0, 0, 0)


@dataclass
class Local:
    """One state of one node, with all that is asked of it often; events are tried when it is first explored."""

    state: ShardState
    rank: Rank
    holder: int  # index of the node its highest certificate names, or -1
    keeps: bool
    fetches_from: tuple[int, ...]
    explored: bool = False
    moves: tuple[Outcome, ...] = ()  # by events of its own
    says: Sent = SILENCE  # what it can say at any time without changing
    fetched: tuple[Outcome, ...] = ()
    faulty: tuple[Outcome, ...] = ()
    heard: int = 0  # messages tried
    stale: int = 0  # of these, without effect now and later
    on: dict[int, tuple[Outcome, ...]] = field(default_factory=dict)  # messages that change the state
    answers: dict[int, Sent] = field(default_factory=dict)  # messages that are only answered


def bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest
        mask ^= lowest


def join(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)
