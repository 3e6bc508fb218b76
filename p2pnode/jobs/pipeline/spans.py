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
GAIN = 1.1  # by which a move must raise what all servers together can do
HALVINGS = 16  # of the interval in which the throughput is looked for
MOST_LOOKED_AT = 256  # moves that are compared at a time
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


def capacity(servers: Sequence[ServerFacts], blocks: int) -> float:
    """Samples a second that all blocks can take, if servers with overlapping spans divide their time as well as can be.

    Whether a pace is possible is found block by block, from the servers that can be of use for the fewest further ones.
    """
    high = sum(server.speed for server in servers) / blocks
    low, first = 0.0, high
    if missing(servers, blocks):
        return 0.0
    for _ in range(HALVINGS):
        if _possible(servers, blocks, first):
            low = first
        else:
            high = first
        first = (low + high) / 2
        if high - low < 1e-3 * high:
            break
    return low


def _possible(servers: Sequence[ServerFacts], blocks: int, pace: float) -> bool:
    """Whether all blocks can have this pace. Servers whose span ends first are used first."""
    left = [server.speed for server in servers]
    order = sorted(range(len(servers)), key=lambda number: servers[number].span.stop)
    for block in range(blocks):
        need = pace
        for number in order:
            if need > 0 and servers[number].span.covers(block, block + 1):
                used = min(left[number], need)
                left[number] -= used
                need -= used
        if need > 1e-9 * pace:
            return False
    return True


class SpanScore(NamedTuple):
    """How good an arrangement is: blocks that are held, what they can do together, and how even it is."""

    held: int
    capacity: float
    even: float  # harmonic mean of the blocks' throughput: it also rewards a first step out of an uneven arrangement

    def better_than(self, other: SpanScore) -> bool:
        """Whether it is worth a move."""
        if self.held != other.held:
            return self.held > other.held
        if self.capacity > GAIN * other.capacity:
            return True
        return self.capacity >= other.capacity * (1 - 1e-3) and self.even > GAIN * other.even


def score(servers: Sequence[ServerFacts], blocks: int) -> SpanScore:
    rates = throughput(servers, blocks)
    held = sum(rate > 0 for rate in rates)
    even = held / sum(1 / rate for rate in rates if rate > 0) if held else 0.0
    return SpanScore(held, round(capacity(servers, blocks), 9), even)


def choose_span(me: str, facts: ServerFacts, others: Sequence[ServerFacts], blocks: int) -> tuple[BlockSpan, str]:
    """The span for a server that holds none yet, or may hold another one, and why that one.

    Of equally good ones it takes one next to blocks that are held, so that no gap remains that is too short for others,
    and then one by a hash, so that nodes that start together choose different ones.
    """
    length = min(facts.capacity, blocks)
    if length < 1:
        return NOTHING, "no block fits into the memory it may use"
    before = throughput(others, blocks)

    def after(first: int) -> tuple[SpanScore, bool, bytes]:
        stop = first + length
        joins = first == 0 or stop == blocks or before[first - 1] > 0 or before[stop] > 0
        found = score([*others, replace(facts, span=BlockSpan(first, stop))], blocks)
        return found, joins, blake3(f"{me}/{first}".encode()).digest()

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
    before = score(list(servers.values()), blocks)
    rates = throughput(servers.values(), blocks)
    uncovered = [block for block, rate in enumerate(rates) if rate <= 0]
    reason = f"nobody holds {_named(uncovered)}" if uncovered else f"block {rates.index(min(rates))} is the slowest"
    best: tuple[SpanScore, bytes, SpanMove] | None = None
    for peer, span in _possible_moves(servers, blocks):
        others = [facts for name, facts in servers.items() if name != peer]
        found = score([*others, replace(servers[peer], span=span)], blocks)
        if not found.better_than(before):
            continue
        key = (found, blake3(f"move {peer} {span.first}".encode()).digest())
        if best is None or key > best[:2]:
            best = (*key, SpanMove(peer, span, reason))
    if best is None and uncovered:
        return _towards_a_row(servers, blocks)
    return None if best is None else best[2]


def _possible_moves(servers: Mapping[str, ServerFacts], blocks: int) -> list[tuple[str, BlockSpan]]:
    """All moves of single servers, or those that a hash chooses where there are too many to compare."""
    found = []
    for peer, facts in servers.items():
        length = min(facts.capacity, blocks)
        spans = (BlockSpan(first, first + length) for first in range(blocks - length + 1))
        found += [(peer, span) for span in spans if span != facts.span and facts.speed > 0]
    if len(found) > MOST_LOOKED_AT:
        found.sort(key=lambda move: blake3(f"{move[0]} {move[1].first}".encode()).digest())
    return found[:MOST_LOOKED_AT]


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
