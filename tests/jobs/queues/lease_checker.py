"""A model checker of leases and logs: every order of takeovers, steps and messages among a few nodes, on real rules.

Any node may take a lease over at any time, which is worse than what clocks allow, and an owner goes on until it hears
of its successor. Signatures are replaced by the signer's name: what is checked is the protocol, not the cryptography.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

from p2pnode.compression.codec import encode_delta
from p2pnode.compression.delta import SparseDelta
from p2pnode.jobs.leases import lease as leases
from p2pnode.jobs.leases.lease import Lease, lease_id, rank, take
from p2pnode.jobs.queues import log as logs
from p2pnode.jobs.queues.log import QueueLog, Step

SCOPE, QUEUE = "run/zoo/small", "small"


class Name(NamedTuple):
    """A signer whose signature is its name."""

    peer_id: str

    def sign(self, message: bytes) -> bytes:
        return self.peer_id.encode()


def signed_by(peer: str, message: bytes, signature: bytes) -> bool:
    return signature == peer.encode()


Chain = int  # the number of a chain that the checker has seen; 0 is the empty one
Claim = int  # the number of a lease that it has seen; 0 is none


class NodeState(NamedTuple):
    """What one node knows."""

    lease: Claim
    chain: Chain


State = tuple[NodeState, ...]


@dataclass
class Scope:
    """How far the checker goes."""

    nodes: int = 3
    terms: int = 2  # leases are taken over up to this term
    steps: int = 4  # in a chain
    items: int = 2  # of each of two producers
    max_states: int = 30_000


@dataclass
class Report:
    states: int = 0
    complete: bool = False
    fenced_counted: int = 0  # chains in which one term has steps of two owners
    items_twice: int = 0
    unequal: int = 0  # states in which nodes still differ once each knows what the other knows
    taken_back: int = 0  # states in which a node took back steps of a replaced owner


@dataclass
class Checker:
    scope: Scope = field(default_factory=Scope)

    def __post_init__(self) -> None:
        self.names = [Name(f"n{number}") for number in range(self.scope.nodes)]
        self.report = Report()
        self._logs: list[QueueLog] = [QueueLog(SCOPE, QUEUE, np.zeros(2, np.int32))]
        self._chains: dict[bytes, Chain] = {self._logs[0].head.id: 0}
        self._leases: list[Lease | None] = [None]
        self._claims: dict[bytes, Claim] = {}
        self._grown: dict[tuple[Claim, Chain], list[Chain]] = {}
        self._heard: dict[tuple[Chain, Chain], Chain] = {}

    def run(self) -> Report:
        """Explore all states that can be reached, at most `max_states` of them."""
        with patch.object(leases, "signed_by", signed_by), patch.object(logs, "signed_by", signed_by):
            first: State = (NodeState(0, 0),) * self.scope.nodes
            seen, waiting = {first}, [first]
            while waiting and len(seen) < self.scope.max_states:
                state = waiting.pop()
                self._check(state)
                for after in self._successors(state):
                    if after not in seen:
                        seen.add(after)
                        waiting.append(after)
            self.report.states = len(seen)
            self.report.complete = not waiting
        return self.report

    # ---- what may happen ----

    def _successors(self, state: State) -> Iterator[State]:
        for me in range(len(state)):
            taken = self._take(state, me)
            if taken is not None:
                yield taken
            yield from self._steps(state, me)
            for other in range(len(state)):
                if other != me:
                    yield self._hear(state, me, other)

    def _take(self, state: State, me: int) -> State | None:
        before, log = self._leases[state[me].lease], self._logs[state[me].chain]
        if before is not None and before.term >= self.scope.terms:
            return None
        if before is not None and before.owner == self.names[me].peer_id and log.allows(rank(before)):
            return None  # it owns the queue and can work
        lease = take(self.names[me], SCOPE, QUEUE, before)
        claim = self._claims.setdefault(lease_id(lease), len(self._leases))
        if claim == len(self._leases):
            self._leases.append(lease)
        return _with(state, me, state[me]._replace(lease=claim))

    def _steps(self, state: State, me: int) -> Iterator[State]:
        """An owner applies the next item of a producer, as long as it has heard of no successor."""
        node = state[me]
        lease = self._leases[node.lease]
        if lease is not None and lease.owner == self.names[me].peer_id:
            key = (node.lease, node.chain)
            if key not in self._grown:
                self._grown[key] = list(self._grow(lease, node.chain, self.names[me]))
            for chain in self._grown[key]:
                yield _with(state, me, node._replace(chain=chain))

    def _grow(self, lease: Lease, chain: Chain, me: Name) -> Iterator[Chain]:
        log = self._logs[chain]
        if not log.allows(rank(lease)) or log.head.index >= self.scope.steps:
            return
        if log.term < lease.term:
            yield self._added(chain, [log.make(me, rank(lease))])
            return
        for producer, place in (("a", 0), ("b", 1)):
            seq = log.applied.get(producer, 0) + 1
            if seq <= self.scope.items:
                delta = SparseDelta(2, np.array([place], np.uint32), np.array([seq], np.int32))
                yield self._added(chain, [log.make(me, rank(lease), [(producer, seq)], delta, encode_delta(delta))])

    def _hear(self, state: State, me: int, other: int) -> State:
        """One node learns all that another knows."""
        mine, theirs = state[me], state[other]
        better = rank(self._leases[theirs.lease]) > rank(self._leases[mine.lease])
        return _with(state, me, NodeState(theirs.lease if better else mine.lease, self._told(mine.chain, theirs.chain)))

    def _told(self, mine: Chain, theirs: Chain) -> Chain:
        key = (mine, theirs)
        if key not in self._heard:
            steps = self._logs[theirs].after(self._logs[mine].positions(), 1 << 20)
            assert steps is not None
            self._heard[key] = self._added(mine, [logs.decode_step(data) for data in steps])
        return self._heard[key]

    def _added(self, chain: Chain, steps: list[Step]) -> Chain:
        """The chain after the real log has taken in some steps."""
        log = copy.deepcopy(self._logs[chain])
        before = log.taken_back
        log.add(steps)
        self.report.taken_back += log.taken_back > before
        after = self._chains.setdefault(log.head.id, len(self._logs))
        if after == len(self._logs):
            self._logs.append(log)
            self._check_chain([done.step for done in log._done])
        same = self._logs[after]
        assert (same.weights == log.weights).all() and _counts(same) == _counts(log), "equal heads, other weights"
        return after

    # ---- what must hold ----

    def _check_chain(self, steps: list[Step]) -> None:
        owners: dict[int, set[str]] = {}
        for step in steps:
            owners.setdefault(step.term, set()).add(step.owner)
        self.report.fenced_counted += any(len(who) > 1 for who in owners.values())
        items = [item for step in steps for item in step.items]
        self.report.items_twice += len(set(items)) < len(items)

    def _check(self, state: State) -> None:
        """Whatever has happened: once all know what the others know, all have the chain of the highest rank."""
        after, places = state, range(len(state))
        for me, other in [(me, other) for _ in range(2) for me in places for other in places if me != other]:
            after = self._hear(after, me, other)
        highest = max(self._logs[node.chain].rank for node in state)
        agreed = len({node.chain for node in after}) == 1 and self._logs[after[0].chain].rank == highest
        self.report.unequal += not agreed


def _counts(log: QueueLog) -> dict[str, int]:
    return {producer: seq for producer, seq in log.applied.items() if seq}


def _with(state: State, place: int, node: NodeState) -> State:
    return (*state[:place], node, *state[place + 1 :])
