"""Routes: what each rule sends where, what none of them ever does, and the reasons they give."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.jobs.train.model_swap_rules import choose_swap
from p2pnode.shards.route import RULES, RouteRules, ShardCandidate, ShardView, choose_shipment, needs, not_most_similar
from p2pnode.shards.visits import EarlierVisits

NOW = 10_000.0


def counts(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float64)


def past(model: str, after: float, time: float = NOW - 60, before: float = 0.1) -> EarlierVisits:
    return EarlierVisits(model, 1, before, after, time)


def shard(name: str, confidence: float = 0.5, *pasts: EarlierVisits, size: int = 1000, labels=None) -> ShardView:
    return ShardView(name, size, confidence, labels, {line.model: line for line in pasts})


def peer(name: str, **fields: Any) -> ShardCandidate:
    return ShardCandidate(name, f"model of {name}", **fields)


def chosen(shards, peers, rule="combined", budget=10_000, seed=0, **more):
    return choose_shipment(shards, peers, budget, NOW, Random(seed), rule=rule, **more)


numbers = st.integers(0, 500)
shard_views = st.builds(
    ShardView,
    id=st.sampled_from([f"s{n}" for n in range(6)]),
    size_bytes=st.integers(1, 3000),
    confidence=st.floats(0, 1) | st.just(math.nan),
    counts=st.none() | st.lists(numbers, min_size=3, max_size=3).map(lambda found: counts(*found)),
    visits=st.lists(st.builds(past, st.sampled_from("abcd"), st.floats(0, 1)), max_size=4).map(
        lambda found: {line.model: line for line in found}
    ),
)
peer_views = st.builds(
    ShardCandidate,
    peer=st.sampled_from([f"peer{n}" for n in range(5)]),
    model=st.sampled_from("abcdef"),
    counts=st.none() | st.lists(numbers, min_size=3, max_size=3).map(lambda found: counts(*found)),
    similarity=st.none() | st.floats(0, 1),
    has=st.frozensets(st.sampled_from([f"s{n}" for n in range(6)]), max_size=3),
    room_bytes=st.integers(0, 5000),
)


@pytest.mark.parametrize("rule", RULES)
@given(
    shards=st.lists(shard_views, max_size=6, unique_by=lambda view: view.id),
    peers=st.lists(peer_views, max_size=5, unique_by=lambda view: view.peer),
    budget=st.integers(0, 3000),
    seed=st.integers(0, 99),
)
def test_what_no_rule_ever_does(rule, shards, peers, budget, seed):
    shipment = chosen(shards, peers, rule, budget, seed)
    assert shipment == chosen(shards, peers, rule, budget, seed), "the same arguments, the same decision"
    if shipment is None:
        return
    to = next(view for view in peers if view.peer == shipment.peer)
    what = next(view for view in shards if view.id == shipment.shard)
    known = [view.similarity for view in peers if view.similarity is not None]
    assert what.size_bytes <= min(budget, to.room_bytes) and what.id not in to.has
    if len(known) > 1 and known.count(max(known)) == 1:
        assert to.similarity != max(known)
    afters = [line.after for line in what.visits.values()]
    assert len(afters) < 3 or max(afters) > RouteRules().failed
    assert shipment.reason and shipment.size_bytes == what.size_bytes


class TestNeed:
    def test_the_formula(self):
        assert needs(counts(0, 90)) == pytest.approx([-math.log(10 / 110), -math.log(100 / 110)])

    def test_the_shard_with_what_is_lacking_goes_to_who_lacks_it(self):
        shards = [shard("even", labels=counts(50, 50)), shard("ones", labels=counts(5, 95))]
        peers = [peer("has ones", counts=counts(0, 500)), peer("has zeros", counts=counts(500, 0))]
        shipment = chosen(shards, peers, "need")
        assert (shipment.shard, shipment.peer) == ("ones", "has zeros")
        assert "needs label 1" in shipment.reason

    @pytest.mark.parametrize("forged", [counts(0, 1e300), counts(0, math.inf), counts(-5, 1e9), counts(math.nan, 1)])
    def test_forged_counts_are_worth_no_more_than_large_ones(self, forged):
        assert (needs(forged) <= needs(counts(0, 1_000_000)).max()).all()
        assert np.isfinite(needs(forged)).all()

    def test_without_labels_nothing_is_needed(self):
        assert chosen([shard("s")], [peer("p", counts=counts(1, 2))], "need") is None
        assert chosen([shard("s", labels=counts(1, 2, 3))], [peer("p", counts=counts(1, 2))], "need") is None


class TestConfidence:
    def test_the_least_sure_shard_travels(self):
        shipment = chosen([shard("easy", 0.9), shard("hard", 0.2)], [peer("p")], "confidence")
        assert shipment.shard == "hard" and "confidence 0.20 here, its model has not seen it" in shipment.reason

    def test_low_here_and_better_elsewhere_travels_first(self):
        shards = [shard("low", 0.2), shard("learnable", 0.2, past("other", 0.9))]
        assert chosen(shards, [peer("p")], "confidence").shard == "learnable"

    def test_what_three_models_failed_at_stays(self):
        failed = [past(model, 0.05) for model in "abc"]
        assert chosen([shard("noise", 0.02, *failed)], [peer("p")], "confidence") is None
        assert chosen([shard("noise", 0.02, *failed)], [peer("p")], "random") is None
        assert chosen([shard("hard", 0.02, *failed[:2])], [peer("p")], "confidence") is not None
        assert chosen([shard("hard", 0.02, *failed[:2], past("c", 0.6))], [peer("p")], "confidence") is not None

    def test_what_is_put_aside_here_stays(self):
        background = replace(shard("noise", 0.2), quarantined=0.6)
        assert all(chosen([background], [peer("p")], rule) is None for rule in RULES)
        assert chosen([replace(background, quarantined=0.2)], [peer("p")], "confidence") is not None

    def test_to_a_model_that_has_not_seen_it_or_long_ago(self):
        lately = [past(f"model of {name}", 0.5, NOW - ago) for name, ago in (("p", 60), ("q", 90_000))]
        assert chosen([shard("s", 0.3, *lately)], [peer("p"), peer("q"), peer("new")], "confidence").peer == "new"
        assert chosen([shard("s", 0.3, *lately)], [peer("p"), peer("q")], "confidence").peer == "q"

    def test_to_the_less_similar(self):
        peers = [peer("twin", similarity=0.99), peer("near", similarity=0.8), peer("far", similarity=0.1)]
        assert chosen([shard("s", 0.3)], peers, "confidence").peer == "far"

    def test_what_nobody_trained_on_here_has_no_confidence(self):
        assert chosen([shard("s", math.nan)], [peer("p")], "confidence") is None


class TestCombined:
    def test_hard_shards_travel_where_needs_are_alike(self):
        labels = counts(10, 10)
        shards = [shard("easy", 0.95, labels=labels), shard("hard", 0.1, labels=labels)]
        sent = [chosen(shards, [peer("p", counts=labels), peer("q", counts=labels)], seed=n).shard for n in range(50)]
        assert sent.count("hard") >= 45

    def test_peers_that_lack_nothing_get_only_what_is_hard(self):
        labels = counts(10, 10)
        assert chosen([shard("easy", 0.9, labels=labels)], [peer("p", counts=counts(500, 480))]) is None
        assert chosen([shard("hard", 0.1, labels=labels)], [peer("p", counts=counts(500, 480))]) is not None
        assert chosen([shard("easy", 0.9, labels=labels)], [peer("p", counts=counts(900, 10))]) is not None

    def test_a_strong_need_comes_first(self):
        shards = [shard("hard", 0.1, labels=counts(10, 0)), shard("needed", 0.9, labels=counts(0, 10))]
        assert chosen(shards, [peer("p", counts=counts(900, 0))]).shard == "needed"

    def test_without_labels_and_training_something_travels_still(self):
        assert chosen([shard("s", math.nan)], [peer("p")]) is not None


def test_a_copy_while_there_is_room_a_move_when_not():
    copy = chosen([shard("s")], [peer("p")], room_bytes=1000)
    move = chosen([shard("s")], [peer("p")], room_bytes=999)
    assert not copy.move and copy.reason.startswith("copy to")
    assert move.move and move.reason.startswith("move to")


def test_a_single_peer_is_not_the_most_similar():
    assert len(not_most_similar([peer("p", similarity=0.9)])) == 1
    left = not_most_similar([peer("p", similarity=0.9), peer("q", similarity=0.2), peer("r")])
    assert [view.peer for view in left] == ["q", "r"]


def test_who_takes_and_never_trains_gets_no_more():
    most = RouteRules().max_unvisited
    assert chosen([shard("s")], [peer("p", unvisited=most - 1)]) is not None
    assert chosen([shard("s")], [peer("p", unvisited=most)]) is None


def test_random_reaches_everybody():
    peers = [peer(name) for name in "pqr"]
    sent = {(s.shard, s.peer) for s in (chosen([shard("s"), shard("t")], peers, "random", seed=n) for n in range(200))}
    assert len(sent) == 6


class TestSwap:
    def test_the_cheaper_way_is_taken_and_said(self):
        assert choose_swap(80_000, 200_000, 2_000, private=False).model_travels is False
        swap = choose_swap(5_000_000, 200_000, 2_000, private=False)
        assert swap.model_travels
        assert swap.reason == "models travel: 0.40 MB, the shard would be 5.00 MB"

    def test_private_data_stay_whatever_it_costs(self):
        swap = choose_swap(1_000, 10**9, 0, private=True)
        assert swap.model_travels and "private" in swap.reason
