"""Idealised routing: lookups are exact whatever the number of hosts, and acquaintances join, leave and split."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.network.sim.faults import Fault, draw_faults, shrink
from p2pnode.network.sim.ring import ID_BITS, Component, RingRouting, ring_id

ids = st.integers(0, 2**ID_BITS - 1) | st.integers(0, 300)


@given(st.lists(ids, unique=True), ids)
def test_nearest_is_the_order_by_xor_distance(members: list[int], target: int) -> None:
    assert list(Component(sorted(members)).nearest(target)) == sorted(members, key=lambda id: id ^ target)


def test_nearest_looks_at_few_of_many() -> None:
    class Counting(list[int]):
        looked = 0

        def __getitem__(self, place: Any) -> Any:
            Counting.looked += 1
            return super().__getitem__(place)

    members = Counting(sorted(ring_id(str(number)) for number in range(20_000)))
    found = Component(members).nearest(ring_id("key"))
    first = [next(found) for _ in range(5)]
    assert first == sorted(members, key=ring_id("key").__xor__)[:5]
    assert Counting.looked < 400


def test_joining_is_transitive_and_starting_anew_is_alone() -> None:
    routing = RingRouting()
    for id in range(40):
        routing.start_anew(id)
    for id in range(1, 20):
        routing.join(id, id - 1)
    for id in range(21, 40):
        routing.join(id, 20)
    assert routing.component(0).ids == list(range(20))
    routing.join(3, 33)
    assert routing.component(0) is routing.component(39)
    assert routing.component(5).ids == list(range(40))
    routing.start_anew(5)
    assert routing.component(5).ids == [5]
    assert 5 not in routing.component(6).ids
    routing.split({6, 7})
    assert routing.component(6).ids == [6, 7]
    assert len(routing.component(0)) == 37


def test_drawn_faults_are_the_seeds_and_end_in_time() -> None:
    faults = draw_faults(random.Random(3), peers=10, seconds=100.0, count=200)
    assert faults == draw_faults(random.Random(3), peers=10, seconds=100.0, count=200)
    assert faults != draw_faults(random.Random(4), peers=10, seconds=100.0, count=200)
    assert max(fault.end for fault in faults) <= 100.0
    assert {fault.kind for fault in faults} == {"partition", "split", "cut", "slow", "loss", "daemon", "crash"}
    assert all(0 <= peer < 10 for fault in faults for peer in fault.peers)


@pytest.mark.parametrize("guilty", [{3}, {0, 19}, {4, 5, 6}])
def test_shrinking_leaves_only_the_faults_that_matter(guilty: set[int]) -> None:
    faults = [Fault(float(number), "crash", (number,)) for number in range(20)]
    left = shrink(faults, lambda some: guilty <= {fault.peers[0] for fault in some})
    assert {fault.peers[0] for fault in left} == guilty
