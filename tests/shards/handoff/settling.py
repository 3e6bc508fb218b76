"""A swarm left to settle, and what must be true when it has."""

from __future__ import annotations

from collections.abc import Sequence

from p2pnode.shards.handoff.certificate import Certificate, rank
from p2pnode.shards.handoff.state import (
    BytesArrived,
    ClaimShard,
    HandoffEvent,
    Meet,
    Received,
    Record,
    Renew,
    ShardState,
    TakeOver,
    restarted,
    sources,
)
from p2pnode.shards.handoff.step import step
from tests.shards.handoff.world import NODES, RUN, SHARD, Stamp, Stepper, Violation


class Settling:
    """A swarm left alone with its disks: no crash, no loss, everybody meets everybody."""

    def __init__(
        self,
        disks: Sequence[tuple[Record, bool] | None],
        copies: int,
        stepper: Stepper = step,
        names: Sequence[str] = NODES,
    ) -> None:
        self.states = {name: restarted(name, *disk) for name, disk in zip(names, disks, strict=True) if disk}
        self.alive = list(self.states)
        self.copies, self.stepper = min(copies, len(self.alive)), stepper

    def run(self) -> None:
        self._protocol()
        self._repair()
        self._protocol()
        self._judge()

    def _protocol(self) -> None:
        before: dict[str, ShardState] = {}
        while before != self.states:
            before = dict(self.states)
            for name in self.alive:
                for peer in self.alive:
                    if peer != name:
                        self._do(name, Meet(peer))
                self._fetch(name)

    def _fetch(self, name: str) -> None:
        for peer in sources(self.states[name], name, tuple(self.alive)):
            if peer in self.alive and self.states[peer].have:
                self._do(name, BytesArrived())

    def _repair(self) -> None:
        """What the node decides by its clock and its table of peers: claim, take over, name living keepers."""
        highest = self._highest()
        if highest is None:
            owner = next((name for name in self.alive if self.states[name].have), "")
            if owner:
                self._do(owner, ClaimShard(RUN, SHARD, self._named(owner)))
            return
        if highest.to not in self.alive:
            taker = next((name for name in self.alive if self.states[name].have and self.states[name].record.kept), "")
            if not taker:
                raise Violation("nobody is left to take over")
            self._do(taker, TakeOver(self._named(taker)))
        current = self._highest()
        assert current is not None
        if current.takeover or not set(current.keepers) <= set(self.alive):
            self._do(current.to, Renew(self._named(current.to)))

    def _judge(self) -> None:
        highest = self._highest()
        if highest is None:
            return
        for name in self.alive:
            state = self.states[name]
            if state.record.highest != highest:
                raise Violation(f"{name} believes another certificate than the rest")
            if (state.have and state.record.kept) != (name in highest.keepers):
                raise Violation(
                    f"{name} {'lacks' if name in highest.keepers else 'still keeps'} the bytes after settling"
                )

    def _do(self, name: str, event: HandoffEvent) -> None:
        after, _, messages, _ = self.stepper(Stamp(name), self.states[name], event)
        self.states[name] = after
        for peer, message in messages:
            if peer in self.alive:
                self._do(peer, Received(name, message))

    def _named(self, first: str) -> tuple[str, ...]:
        return (first, *(name for name in self.alive if name != first))[: self.copies]

    def _highest(self) -> Certificate | None:
        return max((self.states[name].record.highest for name in self.alive), key=rank)
