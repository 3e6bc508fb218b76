"""PPO, the critic, environments of gymnasium, and what a task may get wrong."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from torch import nn

import p2pnode
from benchmarks.actors_envs import Acrobots, CartPoles, MountainCars
from p2pnode.config.options import Options
from p2pnode.jobs.actors.critic import MOST, Critic, critic_layout, first_weights
from p2pnode.jobs.actors.envs import GymEnvs, open_envs
from p2pnode.jobs.actors.learner import PolicyLearner, spaces_hash
from p2pnode.jobs.actors.plan import ActorsPlan, ActorsSettings, read_options
from p2pnode.jobs.actors.ppo import ActingPolicy, ActionSpace, Batch, others_batch, own_batch
from p2pnode.jobs.actors.rollout import MAX_LOG
from p2pnode.jobs.contract import JobSettings
from p2pnode.tasks.find import make_policy_task
from p2pnode.wire.errors import LocalProblem, TaskProblem, UsageError

PLAN = ActorsPlan(1, ActorsSettings(features=8, rollout=64, critic_steps=2))


class Bandit(gymnasium.Env):
    """Episodes of one step. The third action is right."""

    observation_space: Any = Box(-1, 1, (2,))
    action_space: Any = Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.ones(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.ones(2, np.float32), float(action == 2), True, False, {}


class Aim(Bandit):
    """The continuous action 0.5 is right."""

    action_space: Any = Box(-1, 1, (1,), np.float32)

    def step(self, action: Any) -> Any:
        assert -1 <= action[0] <= 1
        return np.ones(2, np.float32), -abs(float(action[0]) - 0.5), True, False, {}


class Task(p2pnode.PolicyTask):
    made: ClassVar[Any] = Bandit

    def env(self) -> Any:
        return self.made()

    def policy(self) -> nn.Module:
        return nn.Linear(2, 1 if self.made is Aim else 3)


class AimTask(Task):
    made = Aim
    learning_rate = 0.02


def learned(task: p2pnode.PolicyTask, iterations: int) -> PolicyLearner:
    torch.set_num_threads(1)
    learner = PolicyLearner(task, PLAN, 1)
    critic = Critic(8, 64, first_weights(8, 64, 1), 1)
    for _ in range(iterations):
        rollout, _ = learner.collect()
        learner.learn(rollout, learner.judge(rollout), critic.values(rollout.features), critic, [])
    return learner


def test_discrete_and_continuous_policies_learn() -> None:
    class Fast(Task):
        learning_rate = 0.02

    assert learned(Fast(), 30).reward == pytest.approx(1.0, abs=0.2)
    reward = learned(AimTask(), 60).reward
    assert reward is not None and reward > -0.75  # −0.9 when untrained (deviation 1 around 0)


def test_own_algorithm_by_one_method() -> None:
    class Reinforce(Task):
        calls = 0

        def learn(self, policy: ActingPolicy, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
            Reinforce.calls += 1
            log_probs, _ = policy.evaluate(batch.observations, batch.actions)
            optimizer.zero_grad()
            (-(log_probs * batch.advantages).mean()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    learned(Reinforce(), 3)
    assert Reinforce.calls == 3


def test_log_probabilities_are_those_of_torch() -> None:
    rng = np.random.default_rng(1)
    for space in (ActionSpace(3), ActionSpace(0, 2, -np.ones(2, np.float32), np.ones(2, np.float32), (2,))):
        policy = ActingPolicy(nn.Linear(4, space.outputs), space)
        seen = rng.normal(size=(32, 4)).astype(np.float32)
        actions, logs = policy.sample(seen, rng)
        found, entropy = policy.evaluate(torch.from_numpy(seen), torch.from_numpy(actions))
        assert found.detach().numpy() == pytest.approx(logs, abs=1e-4)
        output = policy.network(torch.from_numpy(seen))
        truth: Any = torch.distributions.Categorical(logits=output)
        if not space.choices:
            truth = torch.distributions.Independent(torch.distributions.Normal(output, policy.log_std.exp()), 1)
        chosen = torch.from_numpy(actions)
        chosen = chosen[:, 0] if space.choices else chosen
        assert torch.allclose(found, truth.log_prob(chosen), atol=1e-4)
        assert torch.allclose(entropy, truth.entropy(), atol=1e-4)


def test_rollouts_of_other_policies_count_by_their_likelihood() -> None:
    learner = PolicyLearner(Task(), PLAN, 1)
    rollout, _ = learner.collect()
    values = np.zeros(rollout.rows, np.float32)
    own, _ = own_batch(rollout, 2, values, 0.99, 0.95)
    same, _ = others_batch(learner.policy, rollout, 2, values, 0.99, 0.95)
    assert torch.allclose(same.weights, torch.ones(64), atol=1e-4) and same.own == 0 and own.own == 64
    surer = p_replaced(rollout, np.zeros(64, np.float32))  # the other was sure of what it did
    found, _ = others_batch(learner.policy, surer, 2, values, 0.99, 0.95)
    assert torch.allclose(found.weights, found.log_probs.exp(), atol=1e-4) and found.weights.max() < 1
    rarer = p_replaced(rollout, np.full(64, -MAX_LOG, np.float32))
    assert others_batch(learner.policy, rarer, 2, values, 0.99, 0.95)[0].weights.max() == 1, "truncated"


def p_replaced(rollout: Any, log_probs: Any) -> Any:
    from dataclasses import replace

    return replace(rollout, log_probs=log_probs)


def test_a_liar_moves_the_critic_by_its_share_only() -> None:
    """Four actors see the same states; one of them sends the largest targets that are possible."""
    rng = np.random.default_rng(1)
    states = rng.normal(size=(256, 8)).astype(np.float32)
    honest = (states, np.ones(256, np.float32))
    liar = (np.concatenate([states] * 20), np.full(256 * 20, 100.0, np.float32))  # however much it sends
    critic = Critic(8, 32, first_weights(8, 32, 1), 1)
    critic.learn([honest, honest, honest, liar], 300, 256)
    assert critic.values(states).mean() == pytest.approx(1.0 + 1 / 3, abs=0.5), "the error counts linearly"


def test_values_are_bounded_whatever_the_weights_are() -> None:
    states = np.ones((4, 8), np.float32)
    for weight in (1e30, float("nan")):
        critic = Critic(8, 32, np.full(critic_layout(8, 32).size, weight, np.float32), 1)
        assert (np.abs(critic.values(states)) <= MOST).all()


def test_critics_begin_equal_on_every_machine_and_learn() -> None:
    first = first_weights(8, 32, 7)
    assert len(first) == critic_layout(8, 32).size and (first == first_weights(8, 32, 7)).all()
    critic = Critic(8, 32, first, 1)
    assert (critic.weights == first).all()
    states = np.random.default_rng(1).normal(size=(256, 8)).astype(np.float32)
    assert (critic.values(states) == 0).all(), "it begins with no opinion"
    critic.learn([(states, np.tanh(states[:, 0]))], 300, 256)
    assert np.abs(critic.values(states) - np.tanh(states[:, 0])).mean() < 0.2


class PlainMountainCars(MountainCars):
    shaping, top_speed = 0.0, 0.07

    def observe(self, state: Any) -> Any:
        return state


@pytest.mark.parametrize(
    ("ours", "name"),
    [(CartPoles, "CartPole-v1"), (Acrobots, "Acrobot-v1"), (PlainMountainCars, "MountainCar-v0")],
)
def test_environments_of_the_benchmark_are_those_of_gymnasium(ours: Any, name: str) -> None:
    envs, theirs = ours(1), gymnasium.make(name)
    theirs.reset(seed=1)
    envs.reset(1)
    start = np.asarray(theirs.unwrapped.state, np.float64)  # type: ignore[attr-defined]
    envs._state = start[None].copy()
    rng = np.random.default_rng(2)
    for _ in range(60):
        action = int(rng.integers(0, envs.actions.choices))
        seen, reward, terminated, _, _ = theirs.step(action)
        found = envs.step(np.array([[action]], np.float32))
        assert (found.rewards[0], bool(found.ends[0])) == (reward, terminated)
        if terminated:
            break
        assert found.observations[0] == pytest.approx(np.asarray(seen), abs=1e-3)


def test_a_car_is_rewarded_for_energy_and_judged_by_its_steps() -> None:
    """Pushing in the direction of its speed brings the car over the hill; episodes count −1 a step."""
    cars = MountainCars(2)
    seen, rewards = cars.reset(1), 0.0
    while not cars.episodes:
        found = cars.step(np.where(seen[:, 1:] >= 0, 2.0, 0.0).astype(np.float32))
        seen, rewards = found.observations, rewards + found.rewards[0]
    steps, returned = cars.episodes[0]
    assert returned == -steps / 2 and -150 < returned < -80 and rewards > 0


def test_truncated_episodes_keep_what_was_seen_last() -> None:
    class Endless(Bandit):
        def step(self, action: Any) -> Any:
            self.age += 1
            return np.full(2, self.age, np.float32), 0.0, False, self.age == 2, {}

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.age = 0
            return np.zeros(2, np.float32), {}

    envs = GymEnvs([Endless(), Endless()])
    envs.reset(1)
    assert not len(envs.step(np.zeros((2, 1), np.float32)).finals)
    found = envs.step(np.zeros((2, 1), np.float32))
    assert found.ends.tolist() == [2, 2] and found.finals.tolist() == [[2, 2]] * 2 and (found.observations == 0).all()


def test_vector_environments_and_discrete_observations() -> None:
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    same = SyncVectorEnv([Bandit] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    envs = open_envs(lambda: same, 8)
    assert envs.count == 3 and envs.reset(1).shape == (3, 2)
    assert envs.step(np.full((3, 1), 2, np.float32)).rewards.tolist() == [1.0] * 3
    with pytest.raises(UsageError, match="SAME_STEP"):
        open_envs(lambda: SyncVectorEnv([Bandit]), 8)

    class Numbered(Bandit):
        observation_space: Any = Discrete(4)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return 3, {}

    assert open_envs(Numbered, 2).reset(1).tolist() == [[0, 0, 0, 1]] * 2


def problem(task: p2pnode.PolicyTask, plan: ActorsPlan = PLAN) -> str:
    with pytest.raises((UsageError, LocalProblem)) as caught:
        PolicyLearner(task, plan, 1).collect()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def with_space(**spaces: Any) -> p2pnode.PolicyTask:
    class Other(Task):
        made = type("Env", (Bandit,), spaces)

    return Other()


def test_what_a_task_may_get_wrong_is_one_line() -> None:
    assert "Dict are not supported" in problem(with_space(observation_space=Dict({"a": Discrete(2)})))
    assert "MultiDiscrete are not supported" in problem(with_space(action_space=MultiDiscrete([2, 2])))
    assert "needs features=2, and the run has 1" in problem(Task(), ActorsPlan(1, ActorsSettings(features=1)))

    class Wrong(Task):
        def policy(self) -> nn.Module:
            return nn.Linear(2, 7)

    assert "shape [1, 7]" in problem(Wrong())

    class NoEnv(Task):
        def env(self) -> Any:
            return 3

    assert "not int" in problem(NoEnv())

    class Wordy(Task):
        def context(self) -> tuple[float, ...]:
            return (1.0,) * 9

    assert "at most 8" in problem(Wordy())
    assert "write env()" in problem(p2pnode.PolicyTask())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"mode": "quue"}, "mode: Invalid enum value 'quue'; one of queue, replicas, own is possible"),
        ({"feature": 4}, "has no option 'feature'; did you mean 'features'?"),
        ({"features": 0}, "features: "),
        ({"rollout": "many"}, "rollout: "),
    ],
)
def test_slips_in_options_are_one_line(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_options(JobSettings("critic", given, Options(), alone=True))
    assert problem in str(caught.value) and "\n" not in str(caught.value)


def test_a_misspelt_task_is_told_from_those_in_the_file() -> None:
    """Also where it is not known yet that the run's job is of this kind."""
    for base in (p2pnode.PolicyTask, p2pnode.Task):
        with pytest.raises(UsageError, match="known are Heavy, Long, Short, Weak"):
            make_policy_task("examples/four_policies.py:Nope", {}, base)


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_rewards_that_are_no_numbers_end_the_job(reward: float) -> None:
    class Broken(Bandit):
        def step(self, action: Any) -> Any:
            return np.ones(2, np.float32), reward, True, False, {}

    class BrokenTask(Task):
        made = Broken

    assert f"gave the reward {reward}" in problem(BrokenTask())


def test_an_environment_that_raises_is_named_with_its_line() -> None:
    class Raising(Bandit):
        def step(self, action: Any) -> Any:
            raise RuntimeError("out of\norder")

    class RaisingTask(Task):
        made = Raising

    with pytest.raises(TaskProblem, match=r"env\(\).step\(\) raised RuntimeError: out of order .*test_ppo.py:"):
        PolicyLearner(RaisingTask(), PLAN, 1).collect()


def test_missing_gymnasium_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(LocalProblem, match=r"pip install 'p2pnode\[rl\]'"):
        open_envs(lambda: None, 2)


def test_a_policy_goes_on_after_a_restart() -> None:
    learner = learned(Task(), 3)
    again = PolicyLearner(Task(), PLAN, 2)
    again.restore(learner.state())
    seen = torch.ones(1, 2)
    assert torch.equal(again.policy.network(seen), learner.policy.network(seen)) and again.steps == learner.steps
    other = PolicyLearner(AimTask(), PLAN, 2)
    with pytest.raises(ValueError, match="other weights"):
        other.restore(learner.state())
    assert spaces_hash(2, learner.envs.actions) == again.spaces != other.spaces
