"""Which server gets a call: the first one on the way through the blocks that is expected to end soonest. Pure.

A driver measures how long each server takes for a sample through a block, link included, forward and backward apart.
From that and from the calls under way it expects when each server is free. The way is found by a heap of expected
finish times (Dijkstra over block numbers), anew at each call, so that a micro-batch goes around whoever is slow by now.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Literal, NamedTuple

from ...wire.types import Seconds
from .spans import BlockSpan

Direction = Literal["forward", "backward"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward")

SMOOTHING = 0.7  # weight of what was known before
JITTER = 0.1  # by which expectations are varied at random, so that equal servers get equal shares
MOST_UNDER_WAY = 8  # calls of one driver at one server
LEAST_PATIENCE: Seconds = 1.0
UNKNOWN_PATIENCE: Seconds = 10.0
PATIENCE = 4.0  # times the expected duration
HOP: Seconds = 1e-3  # that a call costs besides, so that one server is not asked twice in a row for half of it
LATENCY_GROWS = 1.002  # at each look: the least latency counts, because calls that wait at a server seem slow too
PRICE = 0.5  # by which a call that waits at a server makes its time dearer
BUSY_PAUSE: Seconds = 0.1
FIRST_GUESS: Seconds = 1e-3  # for a sample through a block, before anything was measured
BACKWARD_COST = 3.0  # times a forward pass: it computes the forward pass again


class Hop(NamedTuple):
    """A call to make: to which server, through which blocks."""

    peer: str
    first: int
    stop: int


@dataclass(frozen=True)
class CallUnderWay:
    """A call that was sent. `expected` is what it should take the server once it gets to it."""

    hop: Hop
    direction: Direction
    samples: int
    sent: Seconds
    expected: Seconds

    @property
    def units(self) -> int:
        """Samples times blocks."""
        return self.samples * (self.hop.stop - self.hop.first)


class ServerSight(NamedTuple):
    """What is known of a server from its announcement; a later announcement has a greater stamp."""

    span: BlockSpan
    stamp: float
    latency: Seconds = 0.0  # of a small call


@dataclass
class _Server:
    span: BlockSpan
    stamp: float
    latency: Seconds
    costs: dict[Direction, Seconds] = field(default_factory=dict)  # measured seconds for a sample through a block
    under_way: list[CallUnderWay] = field(default_factory=list)
    last_done: Seconds = 0.0
    rests_until: Seconds = 0.0
    excluded_at: float | None = None  # stamp of its announcement when it failed
    failures: int = 0
    calls: int = 0


class ServerRow(NamedTuple):
    """A server as a driver sees it, for views."""

    peer: str
    span: BlockSpan
    seconds: Seconds | None  # for a sample through a block, forward; None: not measured yet
    under_way: int
    calls: int
    failures: int
    excluded: bool


class SpanRouter:
    """What one driver knows of servers, and which one it asks next. Times are of one monotonic clock."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._servers: dict[str, _Server] = {}

    # ---- who is there ----

    def update(self, sights: Mapping[str, ServerSight]) -> None:
        """These servers are there now. One that is excluded comes back with an announcement made since."""
        for peer in [peer for peer in self._servers if peer not in sights]:
            if not self._servers[peer].under_way:
                del self._servers[peer]
        for peer, (span, stamp, latency) in sights.items():
            server = self._servers.setdefault(peer, _Server(span, stamp, latency))
            server.span, server.stamp = span, stamp
            server.latency = min(latency, LATENCY_GROWS * server.latency) if server.latency else latency
            if server.excluded_at is not None and stamp > server.excluded_at:
                server.excluded_at = None

    def usable(self) -> list[str]:
        """Servers that may be asked."""
        return [peer for peer, server in self._servers.items() if server.excluded_at is None]

    def uncovered(self, blocks: int) -> list[int]:
        """The blocks that no server which may be asked holds."""
        spans = [self._servers[peer].span for peer in self.usable()]
        return [block for block in range(blocks) if not any(span.covers(block, block + 1) for span in spans)]

    def enough(self, samples: int) -> int:
        """How many calls under way keep all servers busy: each computes one, one waits there, others travel."""
        found = 0.0
        for peer in self.usable():
            server = self._servers[peer]
            each = [self._cost(server, direction) for direction in DIRECTIONS if direction in server.costs]
            service = sum(each) / len(each) * samples * server.span.length if each else 0.0
            travelling = server.latency / service if service else 0.0
            found += min(MOST_UNDER_WAY, 2 + travelling)
        return max(2, round(found))

    def rows(self) -> list[ServerRow]:
        return [
            ServerRow(peer, one.span, one.costs.get("forward"), len(one.under_way), one.calls, one.failures,
                      one.excluded_at is not None)
            for peer, one in sorted(self._servers.items(), key=lambda pair: (pair[1].span, pair[0]))
        ]  # fmt: skip

    # ---- the choice ----

    def forward(self, first: int, blocks: int, samples: int, now: Seconds, excluded: Iterable[str] = ()) -> Hop | None:
        """The next call of a micro-batch whose hidden states stand before block `first`; None while nobody can.

        It is the first call of the way to the last block that is expected to end soonest.
        """
        servers = self._candidates(now, excluded)
        costs = {peer: self._price(server) * samples for peer, server in servers.items()}
        best: dict[int, Seconds] = {first: now}
        came: dict[int, tuple[int, str]] = {}
        heap = [(now, first)]
        while heap:
            at, block = heapq.heappop(heap)
            if block == blocks:
                break
            if at > best[block]:
                continue
            for peer, server in servers.items():
                if not server.span.covers(block, block + 1):
                    continue
                begin = max(at, self._free(server, now)) + server.latency + HOP
                for stop in range(block + 1, min(server.span.stop, blocks) + 1):
                    end = begin + costs[peer] * (stop - block)
                    if end < best.get(stop, float("inf")):
                        best[stop], came[stop] = end, (block, peer)
                        heapq.heappush(heap, (end, stop))
        if blocks not in came:
            return self._best_effort(first, came)
        return _first_hop(came, first, blocks)

    def _best_effort(self, first: int, came: Mapping[int, tuple[int, str]]) -> Hop | None:
        """Where no way leads to the end, go as far as one does: somebody may come for the rest."""
        return _first_hop(came, first, max(came)) if came else None

    def backward(self, first: int, stop: int, samples: int, now: Seconds, excluded: Iterable[str] = ()) -> Hop | None:
        """Who takes the gradient back through exactly these blocks; None while nobody can."""
        found: list[tuple[Seconds, float, str]] = []
        for peer, server in self._candidates(now, excluded).items():
            if server.span.covers(first, stop):
                end = (
                    self._free(server, now)
                    + server.latency
                    + self._varied(server, "backward") * samples * (stop - first)
                )
                found.append((end, self._rng.random(), peer))
        return Hop(min(found)[2], first, stop) if found else None

    def another(self, first: int, stop: int, not_these: Iterable[str]) -> Hop | None:
        """Somebody else for the same blocks, at random, to compare answers."""
        skipped = set(not_these)
        peers = [peer for peer in self.usable() if peer not in skipped and self._servers[peer].span.covers(first, stop)]
        return Hop(self._rng.choice(peers), first, stop) if peers else None

    def _candidates(self, now: Seconds, excluded: Iterable[str]) -> dict[str, _Server]:
        """Servers that may be asked now, in random order, which breaks ties. Newcomers get one call at first."""
        skipped = set(excluded)
        peers = [
            peer
            for peer, server in self._servers.items()
            if server.excluded_at is None
            and peer not in skipped
            and server.rests_until <= now
            and len(server.under_way) < (MOST_UNDER_WAY if server.costs else 1)
        ]
        self._rng.shuffle(peers)
        return {peer: self._servers[peer] for peer in peers}

    def _free(self, server: _Server, now: Seconds) -> Seconds:
        """When a server should be done with this driver's calls."""
        if not server.under_way:
            return now
        begun = max(server.last_done, server.under_way[0].sent)
        return max(now, begun + sum(call.expected for call in server.under_way))

    def _price(self, server: _Server) -> Seconds:
        """What a sample through a block costs at a server: the time, and more where many calls wait.

        So a call to a server on which all depend is cut short where another one can do the rest.
        """
        return self._varied(server, "forward") * (1 + PRICE * len(server.under_way))

    def _varied(self, server: _Server, direction: Direction) -> Seconds:
        return self._cost(server, direction) * (1 + JITTER * (2 * self._rng.random() - 1))

    def _cost(self, server: _Server, direction: Direction) -> Seconds:
        """Seconds for a sample through a block. One that was never measured is taken to be as fast as the fastest."""
        if direction in server.costs:
            return server.costs[direction]
        other: Direction = "backward" if direction == "forward" else "forward"
        factor = BACKWARD_COST if direction == "backward" else 1 / BACKWARD_COST
        if other in server.costs:
            return server.costs[other] * factor
        known = [one.costs[direction] for one in self._servers.values() if direction in one.costs]
        return min(known, default=FIRST_GUESS * (BACKWARD_COST if direction == "backward" else 1.0))

    # ---- what happened ----

    def begin(self, hop: Hop, direction: Direction, samples: int, now: Seconds) -> CallUnderWay:
        """Note that a call is sent."""
        server = self._servers[hop.peer]
        expected = self._cost(server, direction) * samples * (hop.stop - hop.first)
        call = CallUnderWay(hop, direction, samples, now, expected)
        server.under_way.append(call)
        server.calls += 1
        return call

    def patience(self, call: CallUnderWay, now: Seconds) -> Seconds:
        """How long to wait for an answer before somebody else is asked."""
        server = self._servers[call.hop.peer]
        if call.direction not in server.costs:
            return UNKNOWN_PATIENCE
        return max(LEAST_PATIENCE, PATIENCE * (self._free(server, now) - now))

    def answered(self, call: CallUnderWay, now: Seconds) -> None:
        """Measure: a server that had several calls of ours worked on this one since it answered the one before."""
        server = self._end(call)
        if server is None:
            return
        cost = max(0.0, now - max(call.sent, server.last_done)) / call.units
        known = server.costs.get(call.direction)
        server.costs[call.direction] = cost if known is None else SMOOTHING * known + (1 - SMOOTHING) * cost
        server.last_done, server.failures = now, 0

    def busy(self, call: CallUnderWay, now: Seconds) -> None:
        """The server has enough to do: it is left alone for a moment, which is no failure."""
        server = self._end(call)
        if server is not None:
            server.rests_until = now + BUSY_PAUSE

    def failed(self, call: CallUnderWay, now: Seconds) -> None:
        """No answer, or a wrong one: the server is left out until it announces itself anew.

        It is slower than expected by as long as it was waited for, so it is waited for longer the next time.
        """
        server = self._end(call)
        if server is not None:
            server.failures += 1
            server.excluded_at = server.stamp
            if call.direction in server.costs:
                waited = (now - max(call.sent, server.last_done)) / call.units
                server.costs[call.direction] = max(server.costs[call.direction], waited)

    def dropped(self, call: CallUnderWay) -> None:
        """The driver gave up on the call for a reason of its own."""
        self._end(call)

    def exclude(self, peer: str) -> None:
        """Leave a server out until it announces itself anew."""
        if peer in self._servers:
            self._servers[peer].excluded_at = self._servers[peer].stamp

    def _end(self, call: CallUnderWay) -> _Server | None:
        server = self._servers.get(call.hop.peer)
        if server is not None and call in server.under_way:
            server.under_way.remove(call)
        return server


def _first_hop(came: Mapping[int, tuple[int, str]], first: int, last: int) -> Hop:
    """The first call of the way that leads from `first` to `last`."""
    stop = last
    while came[stop][0] != first:
        stop = came[stop][0]
    return Hop(came[stop][1], first, stop)
