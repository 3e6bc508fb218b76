"""Routing: faster servers get more, who fails is left out until it announces itself anew, newcomers are measured."""

from __future__ import annotations

import heapq
from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.jobs.pipeline.routing import MOST_UNDER_WAY, CallUnderWay, Hop, ServerSight, SpanRouter
from p2pnode.jobs.pipeline.spans import BlockSpan

SPANS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), min_size=1, max_size=8)


def router_of(spans: dict[str, BlockSpan], seed: int = 0) -> SpanRouter:
    router = SpanRouter(Random(seed))
    router.update({peer: ServerSight(span, 1.0) for peer, span in spans.items()})
    return router


@given(SPANS, st.integers(0, 5), st.integers(0, 99))
def test_a_hop_is_of_a_server_that_holds_the_blocks(spans: list[tuple[int, int]], first: int, seed: int) -> None:
    there = {f"p{number}": BlockSpan(begin, min(6, begin + length)) for number, (begin, length) in enumerate(spans)}
    router = router_of(there, seed)
    hop = router.forward(first, 6, 4, 0.0)
    covered = any(span.covers(first, first + 1) for span in there.values())
    assert (hop is not None) == covered
    if hop is not None:
        assert hop.first == first < hop.stop <= 6
        assert there[hop.peer].covers(hop.first, hop.stop)


def simulated(
    costs: dict[str, float],
    spans: dict[str, BlockSpan],
    blocks: int,
    end: float,
    in_flight: int,
    latency: float = 0.0,
) -> Counter[str]:
    """Samples times blocks that each server did, forward only, if calls to it wait for each other."""
    router = router_of(spans, seed=3)
    router.update({peer: ServerSight(span, 1.0, latency) for peer, span in spans.items()})
    free = dict.fromkeys(costs, 0.0)
    done: Counter[str] = Counter()
    heap: list[tuple[float, int, CallUnderWay | None, int]] = [(0.0, number, None, 0) for number in range(in_flight)]
    while heap:
        now, number, call, block = heapq.heappop(heap)
        if now > end:
            return done
        if call is not None:
            router.answered(call, now)
            done[call.hop.peer] += call.units
            block = call.hop.stop % blocks
        hop = router.forward(block, blocks, 1, now)
        if hop is None:
            heapq.heappush(heap, (now + 0.01, number, None, block))
            continue
        sent = router.begin(hop, "forward", 1, now)
        free[hop.peer] = max(free[hop.peer], now) + costs[hop.peer] * (hop.stop - hop.first)
        heapq.heappush(heap, (free[hop.peer] + latency, number, sent, 0))
    return done


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0.01, 0.08), min_size=2, max_size=5))
def test_shares_follow_speeds(costs: list[float]) -> None:
    named = {f"p{number}": cost for number, cost in enumerate(costs)}
    done = simulated(named, dict.fromkeys(named, BlockSpan(0, 2)), 2, 20.0, 3 * len(costs))
    ideal = sum(20.0 / cost for cost in costs)
    assert sum(done.values()) >= 0.85 * ideal


def test_overlapping_spans_share_the_slowest_block() -> None:
    costs = dict.fromkeys("abc", 0.02)
    done = simulated(costs, {"a": BlockSpan(0, 2), "b": BlockSpan(2, 4), "c": BlockSpan(1, 3)}, 4, 20.0, 9)
    assert sum(done.values()) >= 0.8 * 3 * 20.0 / 0.02


def test_a_row_of_overlapping_spans_does_what_all_of_it_can() -> None:
    """Only the first server holds block 0, so it must leave block 1 to the second, and so on."""
    spans = {f"p{number}": BlockSpan(number, number + 2) for number in range(5)}
    done = simulated(dict.fromkeys(spans, 0.02), spans, 6, 40.0, 20, latency=0.02)
    assert sum(done.values()) >= 0.85 * 5 * 40.0 / 0.02


def test_who_fails_is_left_out_until_it_announces_itself_anew() -> None:
    router = router_of({"a": BlockSpan(0, 2), "b": BlockSpan(0, 2)})
    call = router.begin(Hop("a", 0, 2), "forward", 1, 0.0)
    router.failed(call, 1.0)
    assert {router.forward(0, 2, 1, 2.0 + number) for number in range(20)} == {Hop("b", 0, 2)}
    router.update({"a": ServerSight(BlockSpan(0, 2), 1.0), "b": ServerSight(BlockSpan(0, 2), 2.0)})
    assert router.usable() == ["b"], "the same announcement again is nothing new"
    router.update({"a": ServerSight(BlockSpan(0, 2), 1.5), "b": ServerSight(BlockSpan(0, 2), 2.0)})
    assert set(router.usable()) == {"a", "b"}


def test_busy_is_no_failure() -> None:
    router = router_of({"a": BlockSpan(0, 2)})
    router.busy(router.begin(Hop("a", 0, 2), "forward", 1, 0.0), 0.0)
    assert router.usable() == ["a"]
    assert router.forward(0, 2, 1, 0.01) is None, "left alone for a moment"
    assert router.forward(0, 2, 1, 1.0) == Hop("a", 0, 2)


def test_a_newcomer_is_measured_once_before_it_gets_more() -> None:
    router = router_of({"a": BlockSpan(0, 2), "new": BlockSpan(0, 2)})
    for number in range(5):
        router.answered(router.begin(Hop("a", 0, 2), "forward", 1, float(number)), number + 0.1)
    asked: list[Hop] = []
    for _ in range(6):
        hop = router.forward(0, 2, 1, 10.0)
        assert hop is not None
        asked.append(hop)
        router.begin(hop, "forward", 1, 10.0)
    assert [hop.peer for hop in asked].count("new") == 1


def test_nobody_gets_more_calls_than_it_takes() -> None:
    router = router_of({"a": BlockSpan(0, 2)})
    router.answered(router.begin(Hop("a", 0, 2), "forward", 1, 0.0), 0.1)
    for _ in range(MOST_UNDER_WAY):
        assert router.forward(0, 2, 1, 1.0) is not None
        router.begin(Hop("a", 0, 2), "forward", 1, 1.0)
    assert router.forward(0, 2, 1, 1.0) is None


def test_a_server_that_became_slow_is_waited_for_longer() -> None:
    router = router_of({"a": BlockSpan(0, 2)})
    router.answered(router.begin(Hop("a", 0, 2), "forward", 1, 0.0), 2.0)
    call = router.begin(Hop("a", 0, 2), "forward", 1, 10.0)
    before = router.patience(call, 10.0)
    router.failed(call, 10.0 + before)
    again = router.begin(Hop("a", 0, 2), "forward", 1, 100.0)
    assert router.patience(again, 100.0) > 2 * before


def test_backward_goes_to_any_server_that_holds_all_of_the_blocks() -> None:
    router = router_of({"a": BlockSpan(0, 4), "b": BlockSpan(1, 3), "c": BlockSpan(2, 6)})
    found = {router.backward(1, 3, 1, float(number)) for number in range(50)}
    assert {hop.peer for hop in found if hop is not None} == {"a", "b"}
    assert router.backward(0, 5, 1, 0.0) is None
