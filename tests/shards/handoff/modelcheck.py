"""A model checker of the handoff: explores every state a small swarm can get into with one shard.

Every message ever sent stays deliverable forever, in any order and any number of times; so lost, doubled, reordered
and late messages are all in. A node can crash between any two writes and at any time between events. Only terms below
`Scope.terms` are begun, which makes the space finite; within it nothing is left out and nothing is drawn at random.

In each state reached: the holder by the highest certificate anywhere has the bytes and keeps them; with a fault (a disk
gone for good, a file gone) somebody still keeps them. From what is on the disks in each state, with all messages lost,
the swarm is left to settle: one holder remains, everybody agrees who, and exactly the keepers named keep the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

from p2pnode.shards.handoff.certificate import Rank, certificate_id, rank
from p2pnode.shards.handoff.messages import AnyMessage, Certified, Kept, MayDrop, Offer, Refusal, Release
from p2pnode.shards.handoff.state import (
    BytesArrived,
    ClaimShard,
    Drop,
    Give,
    HandoffEvent,
    Lost,
    Meet,
    NotFetched,
    Received,
    Record,
    Renew,
    ShardState,
    TakeOver,
    restarted,
    sources,
)
from p2pnode.shards.handoff.step import step
from tests.shards.handoff.local import SILENCE, Local, Outcome, bits, join
from tests.shards.handoff.settling import Settling
from tests.shards.handoff.world import NODES, RUN, SHARD, SIGNERS, Report, Scope, Stepper, Violation, after_crash

DEAD = -1
Swarm = tuple[int, ...]  # a local state per node, then the messages waiting at each node as bits, then faults left


class Checker:
    """Explores a scope with a step function, which tests replace by broken ones.

    Two reductions of messages, both sound because a message may always be ignored: whatever can be said without a
    change of state is said at once; and what is about a certificate below the one known, which only ever brings an
    answer that is said anyway, is forgotten. The second is for steps that keep that rule: `forget=False` for others.
    """

    def __init__(self, scope: Scope, stepper: Stepper = step, forget: bool = True) -> None:
        self.scope, self.stepper, self.forget = scope, stepper, forget
        self.report = Report()
        self._locals: list[list[Local]] = [[] for _ in NODES]
        self._numbers: list[dict[ShardState, int]] = [{} for _ in NODES]
        self._messages: list[list[Received]] = [[] for _ in NODES]
        self._bits: list[dict[Received, int]] = [{} for _ in NODES]
        self._ranks: dict[bytes, Rank] = {}  # by certificate id
        self._said: list[dict[tuple[int, int], tuple[int, tuple[int, ...], list[int]]]] = [{} for _ in NODES]
        self._settled: set[tuple[tuple[Record, bool] | None, ...]] = set()
        self._settled_locals: set[tuple[int, ...]] = set()

    def explore(self) -> Report:
        numbers = [self._number(node, state) for node, state in enumerate(self.scope.start)]
        first = self._closed(numbers, [0, 0, 0], self.scope.faults, {0, 1, 2})
        seen, waiting = {first}, [first]
        while waiting:
            swarm = waiting.pop()
            self._check(swarm)
            for after in self._moves(swarm):
                self.report.transitions += 1
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
            if len(seen) >= self.scope.max_states:
                self.report.complete = not waiting
                break
        self.report.states = len(seen)
        self.report.settled = len(self._settled)
        return self.report

    # ---- from a state to the next ----

    def _moves(self, swarm: Swarm) -> Iterator[Swarm]:
        faults = swarm[6]
        for node in range(len(NODES)):
            if swarm[node] == DEAD:
                continue
            local = self._locals[node][swarm[node]]
            for outcome in local.moves:
                yield self._after(swarm, node, outcome, faults)
            if any(swarm[peer] != DEAD and self._locals[peer][swarm[peer]].state.have for peer in local.fetches_from):
                for outcome in local.fetched:
                    yield self._after(swarm, node, outcome, faults)
            if faults:
                for outcome in (*local.faulty, (DEAD, SILENCE)):
                    yield self._after(swarm, node, outcome, faults - 1)
            for bit in bits(swarm[3 + node]):
                for outcome in local.on.get(bit, ()):
                    yield self._after(swarm, node, outcome, faults)

    def _after(self, swarm: Swarm, node: int, outcome: Outcome, faults: int) -> Swarm:
        numbers, waiting = list(swarm[:3]), list(swarm[3:6])
        numbers[node] = outcome[0]
        speaking = {node}
        for to, sent in enumerate(outcome[1]):
            if sent:
                waiting[to] |= sent
                speaking.add(to)
        return self._closed(numbers, waiting, faults, speaking)

    def _closed(self, numbers: list[int], waiting: list[int], faults: int, speaking: set[int]) -> Swarm:
        """The swarm after everybody, beginning with `speaking`, said all that can be said without a change of state."""
        while speaking:
            node = speaking.pop()
            key = (numbers[node], waiting[node])
            found = self._said[node].get(key) or self._said[node].setdefault(key, self._say(node, *key))
            waiting[node] = found[0]
            for to in found[1]:
                if found[2][to] & ~waiting[to]:
                    fresh = self._fresh(to, numbers[to], waiting[to] | found[2][to])
                    if fresh != waiting[to]:
                        waiting[to] = fresh
                        speaking.add(to)
        return (*numbers, *waiting, faults)

    def _fresh(self, node: int, number: int, waiting: int) -> int:
        """What waits at a node without what has no effect there."""
        if number == DEAD:
            return 0
        local = self._explored(node, number)
        unheard = waiting & ~local.heard
        if unheard:
            for bit in bits(unheard):
                self._hear(node, local, bit)
        return waiting & ~local.stale

    def _say(self, node: int, number: int, waiting: int) -> tuple[int, tuple[int, ...], list[int]]:
        """What is left of the messages waiting at a node, and what it sends to which node."""
        waiting = self._fresh(node, number, waiting)
        if number == DEAD:
            return waiting, (), [0, 0, 0]
        local = self._locals[node][number]
        said = list(local.says)
        for bit, answer in local.answers.items():
            if waiting & bit:
                said = [one | more for one, more in zip(said, answer, strict=True)]
        return waiting, tuple(to for to in range(len(NODES)) if said[to]), said

    def _hear(self, node: int, local: Local, bit: int) -> None:
        received = self._messages[node][bit.bit_length() - 1]
        local.heard |= bit
        if self.forget and self._spent(node, local, received.message):
            local.stale |= bit
            return
        own = self._number(node, local.state)
        outcomes = self._outcomes(node, local.state, received)
        local.on[bit] = tuple(outcome for outcome in outcomes if outcome[0] != own)
        for _, sent in (outcome for outcome in outcomes if outcome[0] == own):
            local.answers[bit] = sent

    def _spent(self, node: int, local: Local, message: AnyMessage) -> bool:
        """Whether a message can have no effect at a node any more; certificates known there only ever get higher."""
        if isinstance(message, Refusal):
            return True  # it only ends the repeating of an offer
        if isinstance(message, Kept):
            return self._ranks[message.certificate_id] < local.rank
        if rank(message.certificate) != local.rank:
            return rank(message.certificate) < local.rank
        if isinstance(message, Release):
            return not local.state.record.kept
        asks = isinstance(message, MayDrop) or NODES[node] in message.certificate.keepers
        return isinstance(message, Offer) or not asks

    def _outcomes(self, node: int, state: ShardState, event: HandoffEvent) -> tuple[Outcome, ...]:
        """All an event can lead to: done as a whole, or cut short by a crash after some of its writes."""
        after, writes, messages, _ = self.stepper(SIGNERS[node], state, event)
        sent = [0, 0, 0]
        for peer, message in messages:
            to = NODES.index(peer)
            sent[to] |= self._bit(to, Received(NODES[node], message))
        found: dict[Outcome, None] = {(self._number(node, after), (sent[0], sent[1], sent[2])): None}
        for done in range(1, len(writes)):
            found[self._number(node, after_crash(NODES[node], state, writes, done)), SILENCE] = None
        self.report.kill_points += max(0, len(writes) - 1)
        unchanged = (self._number(node, state), SILENCE)
        return tuple(outcome for outcome in found if outcome != unchanged)

    def _bit(self, to: int, received: Received) -> int:
        if self.forget and isinstance(received.message, Certified):  # who says it matters for the answer only
            received = received._replace(sender=NODES[to - 1])
        known = self._bits[to]
        if received not in known:
            known[received] = 1 << len(known)
            self._messages[to].append(received)
            if not isinstance(received.message, Kept | Refusal):
                certificate = received.message.certificate
                self._ranks[certificate_id(certificate)] = rank(certificate)
        return known[received]

    def _number(self, node: int, state: ShardState) -> int:
        """States by number. What was offered is left out: it only makes a node say again what can arrive forever."""
        state = replace(state, offer=None)
        known = self._numbers[node].get(state)
        if known is not None:
            return known
        number = self._numbers[node][state] = len(self._locals[node])
        highest = state.record.highest
        if highest is not None:
            self._ranks[certificate_id(highest)] = rank(highest)
        self._locals[node].append(
            Local(
                state,
                rank(highest),
                NODES.index(highest.to) if highest else -1,
                state.have and state.record.kept,
                tuple(map(NODES.index, sources(state, NODES[node], NODES))),
            )
        )
        return number

    def _explored(self, node: int, number: int) -> Local:
        local = self._locals[node][number]
        if not local.explored:
            local.explored = True
            tried = [
                outcome
                for event in self._events(node, local.state)
                for outcome in self._outcomes(node, local.state, event)
            ]
            local.moves = tuple(outcome for outcome in tried if outcome[0] != number) + self._crash(node, local.state)
            said = [sent for after, sent in tried if after == number]
            local.says = (join(s[0] for s in said), join(s[1] for s in said), join(s[2] for s in said))
            local.fetched = self._outcomes(node, local.state, BytesArrived()) if local.fetches_from else ()
            local.faulty = self._outcomes(node, local.state, Lost()) if local.state.have else ()
        return local

    def _crash(self, node: int, state: ShardState) -> tuple[Outcome, ...]:
        again = restarted(NODES[node], state.record, state.have)
        self.report.kill_points += 1
        return () if again == state else ((self._number(node, again), SILENCE),)

    def _events(self, node: int, state: ShardState) -> Iterator[HandoffEvent]:
        """What a node may do by itself; what does not fit the state leads to nothing anyway."""
        me, others = NODES[node], [name for name in NODES if name != NODES[node]]
        yield Drop()
        yield NotFetched("no room")
        yield from map(Meet, others)
        if state.record.highest is None:
            yield from (ClaimShard(RUN, SHARD, keepers) for keepers in self._keepers(me))
        elif state.record.next_term < self.scope.terms:
            yield from (Give(to, keepers) for to in others for keepers in self._keepers(to))
            yield from map(Renew, self._keepers(me))
            if self.scope.takeovers:
                yield from map(TakeOver, self._keepers(me))

    def _keepers(self, holder: str) -> list[tuple[str, ...]]:
        return [order for order in permutations(NODES, self.scope.copies) if order[0] == holder]

    # ---- what must be true ----

    def _check(self, swarm: Swarm) -> None:
        alive = [self._locals[node][swarm[node]] for node in range(len(NODES)) if swarm[node] != DEAD]
        highest = max(alive, key=lambda local: local.rank)
        faultless = swarm[6] == self.scope.faults
        if faultless and highest.holder >= 0 and not self._locals[highest.holder][swarm[highest.holder]].keeps:
            raise Violation(f"the holder does not keep the bytes\n{self._described(swarm)}")
        if highest.holder >= 0 and not any(local.keeps for local in alive):
            raise Violation(f"nobody keeps the bytes\n{self._described(swarm)}")
        if swarm[:3] not in self._settled_locals:
            self._settled_locals.add(swarm[:3])
            self._settle(swarm)

    def _settle(self, swarm: Swarm) -> None:
        states = [None if n == DEAD else self._locals[node][n].state for node, n in enumerate(swarm[:3])]
        disks = tuple(None if state is None else (state.record, state.have) for state in states)
        if disks in self._settled:
            return
        self._settled.add(disks)
        settled = Settling(disks, self.scope.copies, self.stepper)
        try:
            settled.run()
        except Violation as broken:
            raise Violation(f"{broken}\nfrom {self._described(swarm)}") from None

    def _described(self, swarm: Swarm) -> str:
        lines = [
            f"{name}: {'gone for good' if n == DEAD else self._locals[node][n].state}"
            for node, (name, n) in enumerate(zip(NODES, swarm[:3], strict=True))
        ]
        return "\n".join(lines)
