"""Laws of advantages, returns and the scale of rewards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.jobs.actors.advantage import (
    CLIP,
    GOES_ON,
    TERMINATED,
    TRUNCATED,
    Array,
    Ends,
    RewardScale,
    advantages,
    normalised,
)
from p2pnode.jobs.actors.rollout import rows_of

Case = tuple[Array, Ends, Array]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Rewards, ends and values of a rollout."""
    steps, envs, seed = draw(st.integers(1, 12)), draw(st.integers(1, 4)), draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    ends = rng.choice([GOES_ON, GOES_ON, TERMINATED, TRUNCATED], (steps, envs)).astype(np.uint8)
    rewards = rng.uniform(-2, 2, (steps, envs)).astype(np.float32)
    return rewards, ends, rng.uniform(-3, 3, rows_of(ends)).astype(np.float32)


def slow_returns(rewards: Array, ends: Ends, values: Array, gamma: float, lam: float) -> Array:
    """λ-returns by their definition, one environment and one step after the other."""
    steps, envs = ends.shape
    cut = iter(values[steps * envs + envs :])
    after = np.zeros((steps, envs))
    for step in range(steps):
        for env in range(envs):
            if ends[step, env] == TRUNCATED:
                after[step, env] = next(cut)
            elif ends[step, env] == GOES_ON:
                place = (step + 1) * envs + env
                after[step, env] = values[place]
    found = np.zeros((steps, envs))
    for env in range(envs):
        for step in range(steps - 1, -1, -1):
            last = step == steps - 1 or ends[step, env] != GOES_ON
            later = after[step, env] if last else (1 - lam) * after[step, env] + lam * found[step + 1, env]
            found[step, env] = rewards[step, env] + gamma * later
    return found.astype(np.float32)


@given(cases(), st.floats(0, 0.999), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_returns_are_those_of_the_definition(case: Case, gamma: float, lam: float) -> None:
    rewards, ends, values = case
    found, returns = advantages(rewards, ends, values, gamma, lam)
    assert returns == pytest.approx(slow_returns(rewards, ends, values, gamma, lam), abs=1e-3)
    states = values[: ends.size].reshape(ends.shape)
    assert found + states == pytest.approx(returns, abs=1e-4)


@given(cases())
@settings(max_examples=40, deadline=None)
def test_nothing_after_the_end_of_an_episode_counts(case: Case) -> None:
    rewards, ends, values = case
    ends = ends.copy()
    ends[0] = TERMINATED
    values = np.resize(values, rows_of(ends))
    other = rewards.copy()
    other[1:] += 1.0
    before, after = (advantages(one, ends, values, 0.99, 0.95)[1][0] for one in (rewards, other))
    assert (before == after).all() and before == pytest.approx(rewards[0], abs=1e-6)


def test_exact_values_leave_no_advantage() -> None:
    """A critic that knows the returns makes every advantage of a certain outcome zero."""
    rewards, ends = np.ones((5, 1), np.float32), np.zeros((5, 1), np.uint8)
    ends[-1] = TERMINATED
    exact = [sum(0.9**later for later in range(5 - step)) for step in range(5)]
    found, _ = advantages(rewards, ends, np.array([*exact, 0.0], np.float32), 0.9, 0.95)
    assert found == pytest.approx(np.zeros((5, 1)), abs=1e-6)


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=4, max_size=40), st.floats(1e-3, 1e3))
@settings(max_examples=60, deadline=None)
def test_the_unit_of_rewards_does_not_matter(rewards: list[float], factor: float) -> None:
    values = np.array(rewards, np.float32)[:, None]
    ends = np.zeros(values.shape, np.uint8)
    one, other = RewardScale(0.9), RewardScale(0.9)
    first, second = one.apply(values, ends), other.apply(values * np.float32(factor), ends)
    assert np.abs(first).max() <= CLIP
    if one.scale > 1e-2 and other.scale > 1e-2:
        assert second == pytest.approx(first, rel=1e-2, abs=1e-3)


def test_the_scale_does_not_depend_on_how_rewards_are_cut_into_rollouts() -> None:
    rng = np.random.default_rng(3)
    rewards, ends = rng.normal(size=(64, 3)).astype(np.float32), rng.choice([0, 0, 0, 1], (64, 3)).astype(np.uint8)
    whole, parts = RewardScale(0.99), RewardScale(0.99)
    whole.apply(rewards, ends)
    for start in range(0, 64, 16):
        parts.apply(rewards[start : start + 16], ends[start : start + 16])
    assert parts.scale == pytest.approx(whole.scale, rel=1e-9)
    again = RewardScale(0.99)
    again.restore(whole.state())
    assert again.scale == whole.scale
    with pytest.raises(ValueError, match="damaged"):
        again.restore(np.array([1.0, np.nan, 2.0]))


def test_normalised_values_have_mean_0_and_deviation_1() -> None:
    values = normalised(np.arange(10, dtype=np.float32))
    assert abs(values.mean()) < 1e-6 and values.std() == pytest.approx(1.0)
    assert (normalised(np.full(4, 7.0, np.float32)) == 0).all()
