"""Spans of blocks: no block is left out where it can be helped, and servers move one at a time until nobody gains."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from p2pnode.jobs.pipeline.spans import (
    NOTHING,
    BlockSpan,
    ServerFacts,
    choose_span,
    missing,
    next_move,
    read_facts,
    throughput,
    write_facts,
)

BLOCKS = st.integers(2, 12)
SERVER = st.tuples(st.integers(1, 6), st.floats(0.5, 8.0))  # capacity and speed


def arrived(servers: list[tuple[int, float]], blocks: int) -> dict[str, ServerFacts]:
    """Servers that came one after the other and chose by what was there."""
    table: dict[str, ServerFacts] = {}
    for number, (capacity, speed) in enumerate(servers):
        facts = ServerFacts(capacity=capacity, speed=speed)
        span, reason = choose_span(f"peer {number}", facts, list(table.values()), blocks)
        assert reason
        assert 0 <= span.first < span.stop <= blocks
        assert span.length == min(capacity, blocks)
        table[f"peer {number}"] = replace(facts, span=span)
    return table


def settled(table: dict[str, ServerFacts], blocks: int) -> dict[str, ServerFacts]:
    """The same after all moves."""
    for _ in range(50):
        move = next_move(table, blocks)
        if move is None:
            return table
        assert move.span != table[move.peer].span
        table = {**table, move.peer: replace(table[move.peer], span=move.span)}
    raise AssertionError("servers move for ever")


@given(st.lists(SERVER, min_size=1, max_size=8), BLOCKS)
def test_moves_end_and_never_leave_more_blocks_out(servers: list[tuple[int, float]], blocks: int) -> None:
    table = arrived(servers, blocks)
    after = settled(table, blocks)
    assert len(missing(after.values(), blocks)) <= len(missing(table.values(), blocks))


@given(st.integers(2, 12), st.integers(1, 4), st.integers(1, 3))
def test_enough_equal_servers_cover_every_block(blocks: int, length: int, times: int) -> None:
    servers = [(length, 1.0)] * (times * -(-blocks // length))
    assert missing(settled(arrived(servers, blocks), blocks).values(), blocks) == []


def test_overlapping_spans_keep_more_after_a_death_than_fixed_stages() -> None:
    table = settled(arrived([(2, 1.0)] * 6, 6), 6)
    assert min(throughput(table.values(), 6)) == 1.0
    del table["peer 3"]
    fixed = min(throughput(table.values(), 6))
    moved = min(throughput(settled(table, 6).values(), 6))
    assert fixed == 0.5, "the stage that lost a server decides"
    assert moved >= fixed


def test_a_block_without_anybody_is_taken_over() -> None:
    table = {f"peer {number}": ServerFacts(BlockSpan(0, 2), 2, 1.0) for number in range(3)}
    table = settled(table, 4)
    assert missing(table.values(), 4) == []


def test_a_server_that_leaves_is_replaced_while_it_is_still_there() -> None:
    two = ServerFacts(BlockSpan(2, 4), 2)
    table = {"old": ServerFacts(BlockSpan(0, 2), 2, 0.0), "a": two, "b": two}
    move = next_move(table, 4)
    assert move is not None
    assert move.peer in ("a", "b") and move.span == BlockSpan(0, 2)
    assert "nobody holds" in move.reason


@given(st.integers(0, 63), st.integers(1, 64), st.floats(0, 1e20), st.integers(0, 1 << 20), st.booleans())
def test_announced_facts_come_back(first: int, length: int, speed: float, waiting: int, drives: bool) -> None:
    span = BlockSpan(first, min(64, first + length))
    state = write_facts(ServerFacts(span, 5, speed, waiting, drives))
    assert len(state) <= 32
    found = read_facts(state, 64)
    assert found is not None
    assert (found.span, found.capacity, found.drives) == (span, 5, drives)


@given(st.binary(max_size=32), BLOCKS)
def test_any_bytes_are_facts_in_range_or_none(state: bytes, blocks: int) -> None:
    found = read_facts(state, blocks)
    assert found is None or (0 <= found.span.first <= found.span.stop <= blocks and found.speed >= 0)


def test_nothing_fits() -> None:
    assert choose_span("me", ServerFacts(), [], 4)[0] == NOTHING
