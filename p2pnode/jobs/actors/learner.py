"""One laptop's learning: its environments, its policy, a copy of the shared critic and a critic of its own.

Heavy: everything here runs in the compute thread, one call after the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray
from torch import nn

from ...storage.checkpoints import Arrays
from ...tasks.errors import error_place
from ...wire.errors import P2pnodeError, TaskProblem, UsageError
from .advantage import Array, advantages
from .critic import Critic, first_weights
from .envs import open_envs
from .plan import ActorsPlan, ActorsSettings
from .ppo import ActingPolicy, ActionSpace, Collector, EnvBatch, Episode, joined, others_batch, own_batch
from .rollout import Rollout, steps_of_rollout
from .task import PolicyTask
from .trust import CriticTrust

CRITIC_BATCH = 256
MAX_CONTEXT = 8
MAX_REWARD = 1e12
RECENT = 20  # episodes whose mean is a laptop's return
KEPT = 4  # rollouts of a laptop that critics learn from


@dataclass(frozen=True)
class Learned:
    """What learning from a rollout brought besides a better policy."""

    changed: bool = False  # whether another critic is used from now on
    taken: int = 0  # rollouts of others that it learned from, too


class PolicyLearner:
    """Collects rollouts with a policy and improves it."""

    def __init__(self, task: PolicyTask, plan: ActorsPlan, seed: int) -> None:
        """UsageError or LocalProblem when the task cannot be used in this run."""
        settings = plan.settings
        self.task = task
        self.name = (task.name or type(task).__name__)[:40]
        self.trust = CriticTrust(settings.mode != "own")
        self.steps = 0  # of its environments
        self.rewards: list[float] = []  # returns of the latest episodes
        self.recent: tuple[Rollout, ...] = ()  # that critics learn from
        self._settings = settings
        self._rng = torch.Generator().manual_seed(seed)
        context = _context(task)
        self.envs: EnvBatch = open_envs(task.env, task.envs)
        needed = self.envs.width + len(context)
        if needed > settings.features:
            raise UsageError(f"the task {self.name} needs features={needed}, and the run has {settings.features}")
        self.policy = self._open_policy(seed)
        self._optimizer = task.optimizer(self.policy)
        with naming(self.name, "env().reset"):
            self._collector = Collector(self.envs, context, settings.features, settings.gamma, seed)
        weights = first_weights(settings.features, settings.width, plan.seed)
        self._own = Critic(settings.features, settings.width, weights, seed)
        numbers = settings.features + self.envs.actions.numbers  # of a step
        self._length = steps_of_rollout(settings.rollout, self.envs.count, numbers)

    def _open_policy(self, seed: int) -> ActingPolicy:
        with torch.random.fork_rng(devices=[]), naming(self.name, "policy"):
            torch.manual_seed(seed)
            network = self.task.policy()
            if not isinstance(network, nn.Module):
                raise UsageError(f"policy() must return a torch network, not {type(network).__name__}")
            shape = tuple(network(torch.zeros(1, self.envs.width)).shape)
        if shape != (1, self.envs.actions.outputs):
            wanted = [1, self.envs.actions.outputs]
            raise UsageError(f"policy() gives numbers of shape {list(shape)} for one observation; {wanted} are needed")
        return ActingPolicy(network, self.envs.actions)

    @property
    def spaces(self) -> bytes:
        """Equal for tasks that can learn from each other's rollouts."""
        return spaces_hash(self.envs.width, self.envs.actions)

    @property
    def reward(self) -> float | None:
        """The mean return of the latest episodes, bounded as messages are; None before the first has ended."""
        return float(np.clip(np.mean(self.rewards), -MAX_REWARD, MAX_REWARD)) if self.rewards else None

    # ---- one iteration ----

    def collect(self) -> tuple[Rollout, list[Episode]]:
        """The next rollout. TaskProblem when the environment or the policy raises, or gives what is no number."""
        with naming(self.name, "env().step"):
            rollout, episodes = self._collector.collect(self.policy, self._length)
        self.steps += rollout.steps
        self.rewards = [*self.rewards, *(episode.reward for episode in episodes)][-RECENT:]
        return rollout, episodes

    def judge(self, rollout: Rollout) -> Array:
        """The values of the own critic, which learns from the rollout afterwards. Needs nothing from others."""
        values = self._own.values(rollout.features)
        self.recent = (*self.recent, rollout)[-KEPT:]
        self._own.learn([lessons(self.recent, self._own, self._settings)], self._settings.critic_steps, CRITIC_BATCH)
        return values

    def learn(
        self, rollout: Rollout, own_values: Array, judged: Array, critic: Critic, others: Sequence[Rollout]
    ) -> Learned:
        """Improve the policy by its own rollout and those of others.

        `own_values` are what `judge` returned, `judged` the values of the shared critic for the same rollout; `critic`
        gives those for the others'.
        """
        settings = self._settings
        changed, values = False, own_values
        if settings.mode != "own":
            changed = self._compare(rollout, judged, own_values)
            values = self.trust.mixed(judged, own_values)
        batch, _ = own_batch(rollout, self.envs.width, values, settings.gamma, settings.lam)
        batches = [batch]
        for other in others:
            theirs = self.trust.mixed(critic.values(other.features), self._own.values(other.features))
            batches.append(others_batch(self.policy, other, self.envs.width, theirs, settings.gamma, settings.lam)[0])
        with naming(self.name, "learn"):
            self.task.learn(self.policy, self._optimizer, joined(batches, self._rng))
        return Learned(changed, len(others))

    def _compare(self, rollout: Rollout, judged: Array, own: Array) -> bool:
        """Which of both critics predicted the returns of a rollout better; returns whether that changes the verdict."""

        def returns(values: Array) -> Array:
            return advantages(rollout.rewards, rollout.ends, values, self._settings.gamma, 1.0)[1].reshape(-1)

        steps = rollout.steps
        self.trust.begin(own[:steps], returns(own))
        return self.trust.note(judged[:steps], own[:steps], returns(self.trust.mixed(judged, own)))

    # ---- over restarts ----

    def state(self) -> Arrays:
        """The policy and how far it has come. The optimizer's moments are not kept."""
        arrays: Arrays = {f"policy/{name}": value.numpy() for name, value in self.policy.state_dict().items()}
        arrays |= {"scale": self._collector.scale.state(), "own critic": self._own.weights}
        counts = np.array([self.steps], np.int64)
        return {**arrays, "counts": counts, "rewards": np.array(self.rewards, np.float64)}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """ValueError, and no change, when the arrays belong to another policy."""
        own = {name: tuple(value.shape) for name, value in self.policy.state_dict().items()}
        saved = {name.removeprefix("policy/"): value for name, value in arrays.items() if name.startswith("policy/")}
        if {name: value.shape for name, value in saved.items()} != own:
            raise ValueError("the saved policy has other weights than that of the task")
        weights = arrays["own critic"]
        if weights.shape != self._own.weights.shape or not np.isfinite(weights).all():
            raise ValueError("the saved critic is damaged")
        self._collector.scale.restore(arrays["scale"])
        self.policy.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in saved.items()})
        self._own.load(weights.astype(np.float32))
        self.steps, self.rewards = int(arrays["counts"][0]), [float(value) for value in arrays["rewards"]][-RECENT:]


class NoPolicy:
    """What is saved of a node that keeps the critic and acts nowhere (Resumable)."""

    def state(self) -> Arrays:
        return {}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        pass


@contextlib.contextmanager
def naming(task: str, method: str) -> Iterator[None]:
    """Turns what the user's code raises inside into a TaskProblem that names the method and the line."""
    try:
        yield
    except P2pnodeError:
        raise
    except Exception as error:  # the user's code may raise anything
        place = error_place(error)
        where = f" ({place})" if place else ""
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise TaskProblem(f"the task {task}: {method}() raised {said}{where}") from error


def lessons(rollouts: Sequence[Rollout], critic: Critic, settings: ActorsSettings) -> tuple[Array, Array]:
    """States of some rollouts, and the λ-returns that a critic should learn for them by what it knows now.

    Values spread backwards through long episodes with every time that an old rollout is taught anew.
    """
    states, targets = [], []
    for one in rollouts:
        values = critic.values(one.features)
        _, returns = advantages(one.rewards, one.ends, values, settings.gamma, settings.lam)
        states.append(one.features[: one.steps])
        targets.append(returns.reshape(-1))
    return np.concatenate(states), np.concatenate(targets)


def spaces_hash(width: int, actions: ActionSpace) -> bytes:
    """Of the form of observations and actions: rollouts with equal hashes have the same meaning column by column."""
    bounds = [] if actions.low is None or actions.high is None else [*actions.low.tolist(), *actions.high.tolist()]
    return blake3(repr((width, actions.choices, actions.size, bounds)).encode()).digest(8)


def _context(task: PolicyTask) -> tuple[float, ...]:
    with naming(type(task).__name__, "context"):
        context = tuple(float(value) for value in task.context())
    if len(context) > MAX_CONTEXT or not np.isfinite(context).all():
        raise UsageError(f"context() gives {len(context)} numbers; at most {MAX_CONTEXT} finite ones are possible")
    return context
