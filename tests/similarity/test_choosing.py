"""Which partners a node chooses by what peer table and reputation say, in its circle and outside."""

from __future__ import annotations

from collections import Counter

import pytest

from p2pnode.similarity.annealing import BRIDGE_RATES, ROUNDS_TO_ONE
from p2pnode.wire.ids import PeerId
from tests.similarity.test_similarity_driver import Node, swarm


def with_circle(size: int = 8) -> tuple[Node, list[Node], list[PeerId]]:
    """A node, the others of its circle, and who they are."""
    nodes = swarm()[: size + 1]
    me, others = nodes[0], nodes[1:]
    me.knows(*others)
    return me, others, [node.peer for node in others]


def chosen(me: Node, circle: list[PeerId], turns: int = 200) -> Counter[PeerId]:
    return Counter(choice.peer for turn in range(turns) for choice in me.similarity.choose(circle, [], turn, 0.0))


def test_who_was_measured_to_be_faster_is_chosen_more_often() -> None:
    me, (fast, slow, *_), circle = with_circle()
    me.services.table.heard(fast.peer, 1.0, 0.1, 1_000_000)
    me.services.table.heard(slow.peer, 1.0, 100.0, 1_000_000)
    found = chosen(me, circle)
    assert found[fast.peer] > 2 * found[slow.peer] > 0


def test_who_answers_sooner_is_chosen_more_often() -> None:
    me, (near, far, *_), circle = with_circle()
    me.services.table.heard(near.peer, 1.0, 0.001)
    me.services.table.heard(far.peer, 1.0, 3.0)
    found = chosen(me, circle)
    assert found[near.peer] > 2 * found[far.peer] > 0


def test_who_did_wrong_lately_is_chosen_less_often() -> None:
    me, (good, bad, *_), circle = with_circle()
    for _ in range(3):
        me.services.reputation.fault(bad.peer, "lies", 1000.0)
    found = chosen(me, circle)
    assert found[good.peer] > 1.5 * found[bad.peer] > 0


def test_those_without_standing_are_not_chosen() -> None:
    me, good, bad = swarm()[:3]
    me.knows(good, bad)
    for _ in range(30):
        me.services.reputation.fault(bad.peer, "lies", 1000.0)
    assert set(chosen(me, [good.peer, bad.peer], 40)) == {good.peer}


def test_when_they_met_is_remembered() -> None:
    me, _, circle = with_circle(3)
    reasons = [{choice.reason for choice in me.similarity.choose(circle, [], turn, 0.0)} for turn in (0, 4, 54)]
    assert [{reason for reason in each if "by chance" not in reason} for each in reasons] == [
        {"in the circle, no exchange yet"},
        {"in the circle, last exchange 4 rounds ago"},
        {"no exchange for 50 rounds"},
    ]


def test_whose_word_has_run_out_or_who_left_is_not_chosen() -> None:
    me, (stays, leaves, *_), circle = with_circle(4)
    me.knows(stays, leaves, expiry=1310.0)
    assert set(chosen(me, circle, 40)) == set(circle)
    me.clock.now = 1305.0
    assert set(chosen(me, circle, 40)) == {stays.peer, leaves.peer}
    me.knows(leaves, left=True, expiry=1311.0)
    assert set(chosen(me, circle, 40)) == {stays.peer}


def test_who_is_alone_in_its_circle_has_only_bridges_to_choose_and_the_reasons_say_so() -> None:
    nodes = swarm()
    me, others = nodes[0], [node.peer for node in nodes[1:]]
    me.knows(*nodes[1:])
    me.swap()
    choices = [choice for turn in range(100) for choice in me.choose([], others, turn, 1000.0)]
    assert len(choices) >= 100, "somebody in every round"
    assert all(choice.bridge for choice in choices)
    assert {choice.reason.split()[0] for choice in choices} == {"bridge", "by"}


@pytest.mark.parametrize(("age", "rate"), [(0.0, BRIDGE_RATES[0]), (ROUNDS_TO_ONE["shared"], BRIDGE_RATES[1])])
def test_an_older_run_bridges_more_often(age: float, rate: float) -> None:
    nodes = swarm()
    me, circle, beyond = nodes[0], [node.peer for node in nodes[1:9]], [node.peer for node in nodes[9:]]
    me.knows(*nodes[1:])
    me.swap()
    choices = [choice for turn in range(400) for choice in me.choose(circle, beyond, turn, age)]
    bridges = sum(choice.reason.startswith("bridge") for choice in choices)
    assert abs(bridges / 400 - rate) < 0.08
    assert (len(me.similarity.communities.firsts) == 1) == (age > 0), "and sees one community in the end"


def test_strangers_nobody_s_fingerprint_brought_are_chosen_too() -> None:
    nodes = swarm()
    me, beyond = nodes[0], [node.peer for node in nodes[1:]]
    for node in nodes[1:]:
        node.fingerprint = b""
    me.knows(*nodes[1:])
    found = {choice.peer for turn in range(400) for choice in me.choose([], beyond, turn, 0.0)}
    assert found == set(beyond)
