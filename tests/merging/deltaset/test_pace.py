"""How long rounds are and how bold steps are: by what was done, by how many there are, or as the run says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from p2pnode.compression.weights import to_units
from p2pnode.merging.deltaset.author import MIN_ENTRIES
from p2pnode.merging.deltaset.pace import FEWEST_STEPS, MOST_RATE, MOST_SHORT_RATE, pace_for
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.policy import Pace, Policy, PolicySetup, RoundFacts
from p2pnode.merging.registry import policy_named
from p2pnode.training.rounds import shortened
from p2pnode.wire.ids import Identity

SIZE = 20_000


def policy(name: str = "deltaset", **settings: float) -> Policy:
    genesis = np.random.Generator(np.random.PCG64(5)).normal(0, 0.1, SIZE).astype(np.float32)
    origin = PolicySetup(to_units(genesis), Identity(bytes(32)), "ab" * 32, "main", "cd" * 32, settings, 1)
    return policy_named(name)(origin)


def test_a_node_alone_keeps_the_tasks_rate() -> None:
    assert pace_for(0, 1).rate == 1.0


def test_larger_circles_step_more_boldly_up_to_a_bound() -> None:
    rates = [pace_for(0, peers).rate for peers in range(1, 20)]
    assert rates == sorted(rates)
    assert rates[3] == 2.0
    assert rates[-1] == MOST_RATE


def test_rounds_are_short_at_first_and_grow_with_what_was_done() -> None:
    lengths = [pace_for(done, 4).steps for done in range(0, 10_000, 100)]
    assert lengths[0] == FEWEST_STEPS
    assert lengths == sorted(lengths)
    assert lengths[-1] > 50 * FEWEST_STEPS


def test_rounds_are_never_longer_than_planned_nor_much_shorter() -> None:
    assert shortened(10, 5) == 5
    assert shortened(10, 500) == 10
    assert shortened(200, 5) == 25
    assert shortened(2, 0) == 1


def test_the_circles_steps_count_not_ones_own() -> None:
    """A joiner goes on at the pace the weights have come to."""
    joiner = policy()
    assert isinstance(joiner, DeltaSetPolicy)
    joiner.set.steps = 4000
    assert joiner.pace(4).steps == 50
    assert joiner.pace(4).at == 1000, "and where its schedule is"


def test_a_run_may_say_otherwise() -> None:
    assert policy(rate=1.5, interval=30).pace(9) == Pace(30, 1.5)
    assert policy("average").pace(9) == Pace()


def sent(member: Policy, budget: int | None) -> int:
    assert isinstance(member, DeltaSetPolicy)
    begun = member.start()
    after = begun + np.random.Generator(np.random.PCG64(7)).normal(0, 0.01, SIZE).astype(np.float32)
    draft = member.record(begun, after, RoundFacts(5, 1.0, 160, 4, budget))
    return len(draft.delta)


def test_a_slow_link_bounds_what_is_sent() -> None:
    free = sent(policy(), None)
    assert free > MIN_ENTRIES
    assert sent(policy(), 10**6) == free
    assert 150 < sent(policy(), 300) <= 200
    assert sent(policy(), 0) == 1


@pytest.mark.parametrize("name", ["gamma", "density", "rate", "interval"])
def test_settings_below_zero_are_refused(name: str) -> None:
    wrong: dict[str, Any] = {name: -1.0}
    with pytest.raises(ValueError, match=name):
        policy(**wrong)


def test_a_short_run_with_a_planned_end_learns_faster_where_progress_is_spread_evenly() -> None:
    assert pace_for(0, 4, even=True, planned=4000).rate == pytest.approx(2.0)
    assert pace_for(0, 4, even=True, planned=500).rate == pytest.approx(MOST_SHORT_RATE, abs=0.03)
    assert pace_for(0, 4, even=True).rate == pytest.approx(2.0)
    assert pace_for(0, 4, planned=500).rate == pytest.approx(2.0)
    assert pace_for(0, 1, even=True, planned=500).rate == 1.0
