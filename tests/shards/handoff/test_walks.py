"""Long random walks of larger swarms: more nodes, copies and terms than a checker of all states can hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.shards.handoff.certificate import copies_wanted, rank
from p2pnode.shards.handoff.messages import AnyMessage
from p2pnode.shards.handoff.state import (
    BytesArrived,
    ClaimShard,
    Drop,
    Give,
    HandoffEvent,
    Meet,
    NotFetched,
    Received,
    Renew,
    ShardState,
    TakeOver,
    sources,
)
from p2pnode.shards.handoff.step import step
from tests.known import known
from tests.shards.handoff.settling import Settling
from tests.shards.handoff.world import RUN, SHARD, Stamp, after_crash

STEPS = 300


@dataclass
class Walk:
    """A swarm driven at random: events, messages in any order, lost or twice, crashes between any two writes."""

    names: list[str]
    rng: Random
    states: dict[str, ShardState] = field(default_factory=dict)
    sent: list[tuple[str, str, AnyMessage]] = field(default_factory=list)
    crashes: int = 0

    def __post_init__(self) -> None:
        self.copies = copies_wanted(len(self.names))
        self.states = {name: ShardState(have=name == self.names[0]) for name in self.names}
        self.do(self.names[0], ClaimShard(RUN, SHARD, self.keepers(self.names[0])), safe=True)

    def keepers(self, first: str) -> tuple[str, ...]:
        others = [name for name in self.names if name != first]
        return (first, *self.rng.sample(others, self.copies - 1))

    def go(self) -> None:
        name = self.rng.choice(self.names)
        if self.sent and self.rng.random() < 0.6:
            to, sender, message = self.rng.choice(self.sent[-60:] if self.rng.random() < 0.8 else self.sent)
            self.do(to, Received(sender, message))
        elif self.rng.random() < 0.3:
            self.fetch(name)
        else:
            self.do(name, self.rng.choice(self.own_events(name)))
        self.judge()

    def own_events(self, name: str) -> list[HandoffEvent]:
        other = self.rng.choice([peer for peer in self.names if peer != name])
        often: list[HandoffEvent] = [Meet(other), Drop(), NotFetched("no room")]
        rarely: list[HandoffEvent] = [
            Give(other, self.keepers(other)),
            Renew(self.keepers(name)),
            TakeOver(self.keepers(name)),
        ]
        return often * 3 + rarely

    def fetch(self, name: str) -> None:
        wanted = sources(self.states[name], name, tuple(self.names))
        if any(self.states[peer].have for peer in wanted):
            self.do(name, BytesArrived())

    def do(self, name: str, event: HandoffEvent, safe: bool = False) -> None:
        before = self.states[name]
        after, writes, messages, _ = step(Stamp(name), before, event)
        done = self.rng.randint(0, len(writes)) if not safe and self.rng.random() < 0.15 else -1
        if done >= 0:
            self.crashes += 1
            self.states[name] = after_crash(name, before, writes, done)
            return
        self.states[name] = after
        self.sent += [(to, name, message) for to, message in messages]

    def judge(self) -> None:
        highest = max((state.record.highest for state in self.states.values()), key=rank)
        assert highest is not None
        holder = self.states[highest.to]
        assert holder.have and holder.record.kept, "the holder does not keep the bytes"


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from([2, 3, 5, 8]))
def test_nothing_is_lost_on_any_walk_and_one_holds_it_in_the_end(seed, size):
    walk = Walk([f"node{number}" for number in range(size)], Random(seed))
    for _ in range(STEPS):
        walk.go()
    settled(walk, lost=[])


def test_walks_go_far():
    """The walks above would prove little if nothing happened on them."""
    walk = Walk([f"node{number}" for number in range(5)], Random(1))
    holders = set()
    for _ in range(3000):
        walk.go()
        highest = known(max((state.record.highest for state in walk.states.values()), key=rank))
        holders.add(highest.to)
    assert len(holders) == 5 and highest.term > 20 and walk.crashes > 100


@pytest.mark.parametrize(("size", "losses"), [(3, 1), (8, 2)])
def test_with_copies_enough_disks_may_be_lost_at_any_moment(size, losses):
    """One less than there are copies, all at once."""
    for seed in range(60):
        walk = Walk([f"node{number}" for number in range(size)], Random(seed))
        walk.states = settled(walk, lost=[])
        for _ in range(walk.rng.randint(0, STEPS)):
            walk.go()
        lost = walk.rng.sample(walk.names, losses)
        assert any(state.have and state.record.kept for name, state in walk.states.items() if name not in lost)
        settled(walk, lost)


def settled(walk: Walk, lost: list[str]) -> dict[str, ShardState]:
    disks = [None if name in lost else (state.record, state.have) for name, state in walk.states.items()]
    settling = Settling(disks, walk.copies, names=walk.names)
    settling.run()
    return settling.states
