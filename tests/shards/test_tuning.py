"""The bandit of the routes: it tries all, prefers what pays, and stays within its bounds whatever is reported."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.shards_tuning import MIXTURES, RouteTuning, choose_mixture, learnt, with_mixture
from p2pnode.shards.route import RouteRules


def test_every_mixture_is_tried_first():
    tuning, tried = RouteTuning(), []
    for _ in MIXTURES:
        tried.append(choose_mixture(tuning))
        tuning = learnt(tuning, tried[-1], 0.2, 0.5, 1000)
    assert sorted(tried) == list(range(len(MIXTURES)))


def test_what_pays_is_chosen_most_and_a_change_is_noticed():
    tuning = RouteTuning()
    for best in (2, 1):
        chosen = []
        for _ in range(300):
            chosen.append(choose_mixture(tuning))
            tuning = learnt(tuning, chosen[-1], 0.1, 0.8 if chosen[-1] == best else 0.2, 1000)
        late = chosen[150:]
        assert late.count(best) > 0.6 * len(late)
        assert len(set(chosen)) == len(MIXTURES), "the others are tried still"


def test_of_equal_gains_the_one_for_fewer_bytes_pays():
    tuning = RouteTuning()
    for _ in range(50):
        for mixture in range(len(MIXTURES)):
            tuning = learnt(tuning, mixture, 0.1, 0.5, 500 if mixture == 3 else 1000)
    assert choose_mixture(tuning) == 3


anything = st.floats(allow_nan=True, allow_infinity=True)


@given(st.lists(st.tuples(st.integers(0, len(MIXTURES) - 1), anything, anything, st.integers(0, 1 << 40)), max_size=40))
def test_whatever_receivers_say_a_mixture_is_a_safe_one(reports):
    tuning = RouteTuning()
    for mixture, before, after, size in reports:
        tuning = learnt(tuning, mixture, before, after, size)
    assert all(math.isfinite(number) and number >= 0 for number in (*tuning.paid, *tuning.tried))
    assert all(paid <= tried for paid, tried in zip(tuning.paid, tuning.tried, strict=True)), "a gain is at most 1"
    rules = with_mixture(RouteRules(), choose_mixture(tuning))
    assert rules.need >= 0.3 and rules.confidence >= 0.1
    assert rules.failing_models == RouteRules().failing_models
