"""Rollouts on the wire, the store of those of others, and the choice between two critics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from p2pnode.jobs.actors.advantage import CLIP, TRUNCATED, Array
from p2pnode.jobs.actors.experience import MAX_ACTORS, LatestByActor
from p2pnode.jobs.actors.messages import Experience, read_experience, write_experience
from p2pnode.jobs.actors.ppo import ActionSpace
from p2pnode.jobs.actors.rollout import (
    MAX_ENVS,
    MAX_FEATURE_BYTES,
    MAX_FEATURES,
    Rollout,
    padded,
    rows_of,
    steps_of_rollout,
)
from p2pnode.jobs.actors.status import ReturnCurve, bars
from p2pnode.jobs.actors.trust import REACH, CriticTrust

TWO = ActionSpace(2)


def rollout(seed: int = 1, steps: int = 6, envs: int = 2, width: int = 5) -> Rollout:
    rng = np.random.default_rng(seed)
    ends = rng.choice([0, 0, 1, 2], (steps, envs)).astype(np.uint8)
    count = ends.size
    return Rollout(
        rng.normal(size=(rows_of(ends), width)).astype(np.float32),
        rng.normal(size=(steps, envs)).astype(np.float32),
        ends,
        rng.integers(0, 2, (count, 1)).astype(np.float32),
        np.log(rng.uniform(0.1, 1, count)).astype(np.float32),
    )


@given(st.integers(0, 1000), st.integers(1, 20), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_what_is_read_is_what_was_written(seed: int, steps: int, envs: int) -> None:
    sent = rollout(seed, steps, envs)
    got = read_experience(write_experience(sent, actions=True), 5, TWO)
    assert (got.ends == sent.ends).all() and (got.actions == sent.actions).all()
    for one, other in ((got.features, sent.features), (got.rewards, sent.rewards), (got.log_probs, sent.log_probs)):
        assert one == pytest.approx(other, rel=2e-3, abs=1e-3)


def test_the_owner_of_the_critic_gets_no_actions() -> None:
    said = write_experience(rollout(), actions=False)
    assert said.actions == said.log_probs == b"" and read_experience(said, 5).actions.shape == (12, 0)


GOOD = write_experience(rollout(), actions=True)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(GOOD, features=GOOD.features[:-2]),
        replace(GOOD, features=GOOD.features + b"\0\0"),
        replace(GOOD, features=b"\x00\x7e" * (len(GOOD.features) // 2)),  # not a number
        replace(GOOD, rewards=b"\x00\x7c" * (len(GOOD.rewards) // 2)),  # infinite
        replace(GOOD, ends=b"\x07" * len(GOOD.ends)),
        replace(GOOD, envs=5),
        replace(GOOD, envs=250),
        replace(GOOD, action_size=2),
        replace(GOOD, actions=np.full(12, 2, "<f2").tobytes()),
        replace(GOOD, actions=np.full(12, 0.5, "<f2").tobytes()),
        replace(GOOD, actions=np.full(12, -1, "<f2").tobytes()),
        replace(GOOD, log_probs=np.full(12, -60_000, "<f2").tobytes()),
    ],
)
def test_what_does_not_fit_together_is_refused(wrong: Experience) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (each in its own words)
        read_experience(wrong, 5, TWO)


def test_wrong_feature_width_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes where"):
        read_experience(GOOD, 6, TWO)


def test_huge_rewards_are_clipped() -> None:
    huge = np.full((6, 2), 50_000, "<f2").tobytes()
    assert read_experience(replace(GOOD, rewards=huge), 5, TWO).rewards.max() == CLIP


@given(st.integers(64, 4096), st.integers(1, MAX_ENVS), st.integers(1, MAX_FEATURES))
def test_every_rollout_fits_into_a_message(wanted: int, envs: int, features: int) -> None:
    steps = steps_of_rollout(wanted, envs, features)
    worst = np.full((steps, envs), TRUNCATED, np.uint8)
    assert steps >= 1 and steps * envs <= max(wanted, envs)
    assert 2 * features * rows_of(worst) <= MAX_FEATURE_BYTES


def test_observations_are_padded_with_the_context() -> None:
    found = padded(np.ones((2, 3), np.float32), (7.0,), 6)
    assert found.tolist() == [[1, 1, 1, 7, 0, 0]] * 2
    with pytest.raises(ValueError, match="needs features=4"):
        padded(np.ones((2, 3), np.float32), (7.0,), 3)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=30), st.integers(1, 3))
def test_each_thing_is_kept_once_and_only_the_latest(arrivals: list[tuple[str, int]], each: int) -> None:
    store = LatestByActor[int](each)
    came: dict[str, set[int]] = {}
    for actor, ticket in arrivals:
        earlier = came.setdefault(actor, set())
        late = len(earlier) >= each and ticket < sorted(earlier)[-each]
        assert store.put(actor, ticket, ticket) == (ticket not in earlier and not late)
        earlier.add(ticket)
    assert store.by_actor() == {actor: tuple(sorted(tickets)[-each:]) for actor, tickets in came.items()}
    assert len(store.take()) <= 3 * each and not store.take()
    assert all(not store.put(actor, ticket, 0) for actor, ticket in arrivals), "what was taken does not come again"


def test_one_peer_cannot_make_the_store_grow() -> None:
    store = LatestByActor[int](4)
    for number in range(1000):
        store.put("one", number, number)
        store.put(f"peer {number}", 0, number)
    assert len(store.by_actor()) <= MAX_ACTORS and len(store) <= 4 * MAX_ACTORS


def noted(trust: CriticTrust, shared: Array, own: Array, returns: Array) -> bool:
    trust.begin(own, returns)
    return trust.note(shared, own, returns)


def case(seed: int, shared: float, own: float) -> tuple[Array, Array, Array]:
    """Values of two critics with errors of these sizes, independent of each other, and the returns."""
    rng = np.random.default_rng(seed)
    returns = rng.normal(size=200).astype(np.float32)
    first, second = (rng.normal(size=200).astype(np.float32) for _ in range(2))
    return returns + np.float32(shared) * first, returns + np.float32(own) * second, returns


def test_a_useless_shared_critic_is_not_used_until_it_is_good_again() -> None:
    trust = CriticTrust()
    assert not any(noted(trust, *case(seed, 1.0, 1.0)) for seed in range(20)) and trust.shared
    assert trust.part == pytest.approx(0.5, abs=0.1), "two that are as good as each other count alike"
    changes = [noted(trust, *case(seed, 4.0, 1.0)) for seed in range(20)]
    assert sum(changes) == 1 and not trust.shared and trust.part == 0 and "its own critic" in trust.reason
    assert changes.index(True) < 5, "a laptop loses a few rollouts, not more"
    changes = [noted(trust, *case(seed, 0.5, 1.0)) for seed in range(40)]
    assert sum(changes) == 1 and trust.shared and trust.part > 0.7 and "better" in trust.reason


@given(st.integers(0, 2**20), st.floats(0.1, 5.0), st.floats(0.1, 5.0))
@settings(max_examples=60, deadline=None)
def test_the_mixture_predicts_at_least_as_well_as_the_own_critic(seed: int, shared: float, own: float) -> None:
    trust = CriticTrust()
    for rollout in range(6):
        noted(trust, *case(seed + rollout, shared, own))
    both, alone, returns = case(seed + 100, shared, own)
    error = np.square(trust.mixed(both, alone) - returns).mean()
    assert error <= 1.1 * np.square(alone - returns).mean()


def test_nonsense_pulls_the_values_only_as_far_as_the_own_critic_errs() -> None:
    """Returns that end in the shared critic's predictions make it look right: the reach bounds that."""
    trust = CriticTrust()
    own, returns = np.zeros(100, np.float32), np.ones(100, np.float32)
    trust.begin(own, returns)
    nonsense = np.full(100, 100.0, np.float32)
    assert trust.mixed(nonsense, own).max() <= 0.5 * REACH
    for _ in range(4):
        noted(trust, nonsense, own, returns + trust.mixed(nonsense, own) * np.float32(0.9))
    assert not trust.shared and (trust.mixed(nonsense, own) == own).all()


Values = st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3)


@given(st.lists(st.tuples(Values, Values, Values), min_size=1, max_size=30))
def test_trust_never_fails(rollouts: list[tuple[list[float], list[float], list[float]]]) -> None:
    trust = CriticTrust()
    for rollout in rollouts:
        shared, own, returns = (np.array(values, np.float32) for values in rollout)
        noted(trust, shared, own, returns)
        assert 0.0 <= trust.part <= 1.0 and -2.0 <= trust.ratio <= 2.0 and 0 < len(trust.reason) <= 80
        assert np.isfinite(trust.mixed(shared, own)).all()
    assert not CriticTrust(uses_shared=False).mixed(np.ones(3, np.float32), np.zeros(3, np.float32)).any()


@given(st.lists(st.floats(-1e6, 1e6), max_size=400))
def test_a_curve_is_bounded_and_within_its_values(values: list[float]) -> None:
    curve = ReturnCurve(8)
    for value in values:
        curve.add(value)
    points = curve.points()
    assert len(points) <= 8 and len(bars(points)) == len(points)
    assert all(min(values) - 1e-6 <= point <= max(values) + 1e-6 for point in points)
