"""Who holds which blocks: a server holds a span of consecutive blocks, and spans may overlap. Pure.

Every node computes the same table from what all announce. A newcomer takes the span that helps the weakest block most.
Later one server at a time moves: at once to a block that nobody holds, else for a clear gain.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from blake3 import blake3

MAX_BLOCKS = 64
GAIN = 1.2  # by which a move must raise the throughput of the weakest block
_FORMAT = struct.Struct("<BBBBBfH")
_VERSION = 1
_DRIVES = 1


class BlockSpan(NamedTuple):
    """The blocks from `first` up to, and without, `stop`. An empty one holds nothing."""

    first: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.first

    def covers(self, first: int, stop: int) -> bool:
        """Whether all blocks of another span, which is not empty, are in this one."""
        return self.first <= first < stop <= self.stop

    def __str__(self) -> str:
        return "nothing" if not self.length else f"{self.first}-{self.stop - 1}"


NOTHING = BlockSpan(0, 0)


@dataclass(frozen=True)
class ServerFacts:
    """What a node announces: the blocks it holds, how many it could hold, its speed, calls that wait, if it drives."""

    span: BlockSpan = NOTHING
    capacity: int = 0  # blocks that fit its memory; 0: it serves nobody
    speed: float = 1.0  # samples through one block, forward and backward, a second
    waiting: int = 0
    drives: bool = False

    @property
    def rate(self) -> float:
        """Samples a second that it adds to each block of its span."""
        return self.speed / self.span.length if self.span.length else 0.0


class SpanMove(NamedTuple):
    """A server should hold another span, and why."""

    peer: str
    span: BlockSpan
    reason: str


def throughput(servers: Iterable[ServerFacts], blocks: int) -> list[float]:
    """Samples a second that each block can take, if every server divides its time evenly over its span."""
    found = [0.0] * blocks
    for server in servers:
        for block in range(server.span.first, min(blocks, server.span.stop)):
            found[block] += server.rate
    return found


def missing(servers: Iterable[ServerFacts], blocks: int) -> list[int]:
    """The blocks that nobody holds."""
    return [block for block, rate in enumerate(throughput(servers, blocks)) if rate <= 0]


def choose_span(me: str, facts: ServerFacts, others: Sequence[ServerFacts], blocks: int) -> tuple[BlockSpan, str]:
    """The span for a server that holds none yet, or may hold another one, and why that one.

    It makes the weakest block as strong as possible, then the next weakest, and so on. Of equal ones it takes one next
    to blocks that are held, so that no gap remains that is too short for others, and then one by a hash, so that nodes
    that start together choose different ones.
    """
    length = min(facts.capacity, blocks)
    if length < 1:
        return NOTHING, "no block fits into the memory it may use"
    before = throughput(others, blocks)
    each = facts.speed / length

    def after(first: int) -> tuple[list[float], bool, bytes]:
        stop = first + length
        rates = sorted(rate + (each if first <= block < stop else 0.0) for block, rate in enumerate(before))
        joins = first == 0 or stop == blocks or before[first - 1] > 0 or before[stop] > 0
        return rates, joins, blake3(f"{me}/{first}".encode()).digest()

    first = max(range(blocks - length + 1), key=after)
    span = BlockSpan(first, first + length)
    alone = [block for block in range(span.first, span.stop) if before[block] <= 0]
    if alone:
        return span, f"nobody else holds {_named(alone)}"
    return span, f"block {min(range(span.first, span.stop), key=lambda block: before[block])} is among the slowest"


def next_move(table: Mapping[str, ServerFacts], blocks: int) -> SpanMove | None:
    """The one server that should move next, and where to; None while the spans are good as they are.

    `table` has all servers. Whoever gains most moves; the others wait and look again.
    """
    servers = {peer: facts for peer, facts in table.items() if facts.capacity and facts.span.length}
    before = throughput(servers.values(), blocks)
    weakest = min(before, default=0.0)
    best: tuple[tuple[float, float, bytes], SpanMove] | None = None
    for peer, facts in servers.items():
        others = [other for name, other in servers.items() if name != peer]
        span, _ = choose_span(peer, facts, others, blocks)
        if span == facts.span:
            continue
        after = throughput([*others, replace(facts, span=span)], blocks)
        gained = sum(rate > 0 for rate in after) - sum(rate > 0 for rate in before)
        if gained <= 0 and (gained < 0 or min(after) <= GAIN * weakest):
            continue
        uncovered = [block for block, rate in enumerate(before) if rate <= 0]
        slow = before.index(weakest)
        reason = f"nobody holds {_named(uncovered)}" if uncovered else f"block {slow} is the slowest"
        key = (float(gained), min(after), blake3(f"move {peer}".encode()).digest())
        if best is None or key > best[0]:
            best = (key, SpanMove(peer, span, reason))
    if best is None and weakest <= 0:
        return _towards_a_row(servers, blocks)
    return None if best is None else best[1]


def _towards_a_row(servers: Mapping[str, ServerFacts], blocks: int) -> SpanMove | None:
    """Where a block is missing and no single move helps: the first move towards spans one after the other."""
    first = 0
    able = {peer: facts for peer, facts in servers.items() if facts.speed > 0}
    if sum(min(facts.capacity, blocks) for facts in able.values()) < blocks:
        return None
    for peer, facts in sorted(able.items(), key=lambda pair: (pair[1].span, pair[0])):
        length = min(facts.capacity, blocks)
        begin = min(first, blocks - length)
        span = BlockSpan(begin, begin + length)
        if facts.span != span:
            return SpanMove(peer, span, "the spans leave a gap that is too short for anybody")
        first = begin + length
    return None


def _named(blocks: Sequence[int]) -> str:
    return f"block {blocks[0]}" if len(blocks) == 1 else f"{len(blocks)} blocks from {blocks[0]} on"


def write_facts(facts: ServerFacts) -> bytes:
    """What a node announces, in 11 bytes."""
    speed = min(1e30, max(0.0, facts.speed)) if math.isfinite(facts.speed) else 0.0
    flags = _DRIVES if facts.drives else 0
    span, waiting = facts.span, min(facts.waiting, 0xFFFF)
    return _FORMAT.pack(_VERSION, flags, span.first, span.stop, min(facts.capacity, 255), speed, waiting)


def read_facts(state: bytes, blocks: int) -> ServerFacts | None:
    """What a node announced; None where it announced nothing, or nothing that makes sense here."""
    if len(state) != _FORMAT.size or state[0] != _VERSION:
        return None
    _, flags, first, stop, capacity, speed, waiting = _FORMAT.unpack(state)
    if not first <= stop <= blocks or not math.isfinite(speed) or speed < 0:
        return None
    span = BlockSpan(first, stop) if first < stop else NOTHING
    return ServerFacts(span, capacity, speed, waiting, bool(flags & _DRIVES))
