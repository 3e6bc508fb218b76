"""Proximal policy optimisation, whole: collect a rollout, weigh its advantages, improve the policy.

Values come from outside (the shared critic or a copy of it), so the policy and the value network have nothing in
common. The details are those of CleanRL's ppo.py: advantages with mean 0 and deviation 1, clipped ratios, an entropy
bonus, clipped gradients. Rollouts of other policies count by the truncated importance weight min(1, own / theirs).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...wire.errors import TaskProblem
from .advantage import GOES_ON, TERMINATED, TRUNCATED, Array, Ends, RewardScale, advantages, normalised
from .rollout import MAX_LOG, Rollout, padded


@dataclass(frozen=True)
class ActionSpace:
    """Which actions an environment takes: one of `choices`, or `size` numbers between `low` and `high`."""

    choices: int = 0  # 0: continuous
    size: int = 1
    low: Array | None = None
    high: Array | None = None
    shape: tuple[int, ...] = ()  # of one continuous action
    start: int = 0  # number of the first choice

    def for_env(self, actions: NDArray[np.float32]) -> list[Any]:
        """Actions [N, A] as environments take them; continuous ones are clipped to their bounds."""
        if self.choices:
            return [int(action) + self.start for action in actions[:, 0]]
        return list(np.clip(actions, self.low, self.high).reshape(len(actions), *self.shape))

    @property
    def outputs(self) -> int:
        """How many numbers a policy gives for one observation."""
        return self.choices or self.size

    @property
    def numbers(self) -> int:
        """How many numbers one action is."""
        return 1 if self.choices else self.size


@dataclass(frozen=True)
class EnvStep:
    """What the environments gave for one action each. `observations` are those of the next episode where one ended."""

    observations: Array  # [N, D]
    rewards: NDArray[np.float64]  # [N]
    ends: Ends  # [N]
    finals: Array  # [truncated, D]: what was seen at the end of truncated episodes


class EnvBatch(Protocol):
    """Several environments that take their steps together."""

    count: int
    width: int  # numbers in an observation
    actions: ActionSpace

    def reset(self, seed: int) -> Array: ...

    def step(self, actions: NDArray[np.float32]) -> EnvStep: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class PpoSettings:
    """How a policy learns from a batch."""

    epochs: int = 4
    clip: float = 0.2
    entropy: float = 0.01
    max_gradient: float = 0.5


@dataclass(frozen=True)
class Batch:
    """What a policy learns from. Samples of other nodes' policies have weights below 1."""

    observations: Tensor  # [B, D]
    actions: Tensor  # [B, A]
    log_probs: Tensor  # [B], under this node's policy before it learns
    advantages: Tensor  # [B]
    weights: Tensor  # [B]
    own: int  # how many of the samples, from the first on, are this node's own
    rng: torch.Generator | None = None

    def __len__(self) -> int:
        return len(self.advantages)

    def minibatches(self, size: int) -> Iterable[Tensor]:
        """The indices of all samples in a random order, `size` at a time."""
        order = torch.randperm(len(self), generator=self.rng)
        return (order[start : start + size] for start in range(0, len(order), size))


class ActingPolicy(nn.Module):
    """A user's network with what makes its output a distribution over actions."""

    def __init__(self, network: nn.Module, actions: ActionSpace) -> None:
        super().__init__()
        self.network = network
        self.actions = actions
        self.log_std = nn.Parameter(torch.zeros(0 if actions.choices else actions.size))

    def evaluate(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the actions, and the entropy of the distributions: both [B]."""
        output = self.network(observations)
        if self.actions.choices:
            logs = torch.log_softmax(output, dim=1)
            return logs.gather(1, actions.long()).squeeze(1), -(logs.exp() * logs).sum(1)
        normal = (actions - output) / self.log_std.exp()
        constant = self.log_std + 0.5 * math.log(2 * math.pi)
        return -(0.5 * normal**2 + constant).sum(1), (constant + 0.5).sum().expand(len(actions))

    def sample(self, observations: Array, rng: np.random.Generator) -> tuple[NDArray[np.float32], Array]:
        """Actions [N, A] and their log-probabilities [N]. Diverged when the network gives no finite numbers."""
        with torch.no_grad():
            output = self.network(torch.from_numpy(observations)).numpy()
        if not np.isfinite(output).all():
            raise TaskProblem("the policy's outputs are not finite numbers; a lower learning_rate helps")
        if self.actions.choices:
            output = output - output.max(axis=1, keepdims=True)
            logs = output - np.log(np.exp(output).sum(axis=1, keepdims=True))
            chosen = np.argmax(logs + rng.gumbel(size=logs.shape), axis=1)
            return chosen[:, None].astype(np.float32), logs[np.arange(len(logs)), chosen]
        log_std = self.log_std.detach().numpy()
        noise = rng.standard_normal(output.shape).astype(np.float32)
        logs = -(0.5 * noise**2 + log_std + 0.5 * math.log(2 * math.pi)).sum(axis=1)
        return output + noise * np.exp(log_std), logs


@dataclass(frozen=True)
class Episode:
    """A finished episode."""

    reward: float  # the sum of its rewards, as the environment gave them
    steps: int


class Collector:
    """Walks environments with a policy. What it returns are rollouts whose rewards are normalised."""

    def __init__(self, envs: EnvBatch, context: tuple[float, ...], width: int, gamma: float, seed: int) -> None:
        self.scale = RewardScale(gamma)
        self._envs = envs
        self._context = context
        self._width = width
        self._rng = np.random.default_rng(seed)
        self._now = envs.reset(seed)
        self._rewards = np.zeros(envs.count)
        self._lengths = np.zeros(envs.count, np.int64)

    def collect(self, policy: ActingPolicy, steps: int) -> tuple[Rollout, list[Episode]]:
        """Some steps of every environment, and the episodes that ended. TaskProblem when a reward is no number."""
        envs = self._envs
        seen = np.empty((steps, envs.count, envs.width), np.float32)
        rewards = np.empty((steps, envs.count), np.float32)
        ends = np.empty((steps, envs.count), np.uint8)
        actions = np.empty((steps, envs.count, envs.actions.numbers), np.float32)
        log_probs = np.empty((steps, envs.count), np.float32)
        finals, episodes = [], []
        for step in range(steps):
            seen[step] = self._now
            actions[step], log_probs[step] = policy.sample(self._now, self._rng)
            found = envs.step(actions[step])
            rewards[step], ends[step], self._now = found.rewards, found.ends, found.observations
            finals.append(found.finals)
            episodes += self._note(found.rewards, found.ends)
        _check_finite(rewards, "reward")
        rows = np.concatenate([seen.reshape(-1, envs.width), self._now, *finals])
        _check_finite(rows, "observation")
        features = padded(rows, self._context, self._width)
        flat = actions.reshape(steps * envs.count, -1)
        scaled = self.scale.apply(rewards, ends)
        return Rollout(features, scaled, ends, flat, np.clip(log_probs.reshape(-1), -MAX_LOG, MAX_LOG)), episodes

    def _note(self, rewards: NDArray[np.float64], ends: Ends) -> list[Episode]:
        self._rewards += rewards
        self._lengths += 1
        done = np.flatnonzero(ends != GOES_ON)
        found = [Episode(float(self._rewards[env]), int(self._lengths[env])) for env in done]
        self._rewards[done], self._lengths[done] = 0.0, 0
        return found


def _check_finite(values: Array, what: str) -> None:
    if not np.isfinite(values).all():
        bad = values[~np.isfinite(values)].reshape(-1)[0]
        raise TaskProblem(f"the environment gave the {what} {bad}; mend the environment and start again")


def own_batch(rollout: Rollout, width: int, values: Array, gamma: float, lam: float) -> tuple[Batch, Array]:
    """The batch of this node's own rollout, and the λ-returns [T·N] that the critic should learn."""
    found, returns = advantages(rollout.rewards, rollout.ends, values, gamma, lam)
    batch = Batch(
        torch.from_numpy(rollout.features[: rollout.steps, :width].copy()),
        torch.from_numpy(rollout.actions),
        torch.from_numpy(rollout.log_probs),
        torch.from_numpy(normalised(found.reshape(-1))),
        torch.ones(rollout.steps),
        rollout.steps,
    )
    return batch, returns.reshape(-1)


def others_batch(
    policy: ActingPolicy, rollout: Rollout, width: int, values: Array, gamma: float, lam: float
) -> tuple[Batch, Array]:
    """The batch of another node's rollout, weighted by how likely this node's policy would have done the same."""
    batch, returns = own_batch(rollout, width, values, gamma, lam)
    with torch.no_grad():
        own, _ = policy.evaluate(batch.observations, batch.actions)
        weights = torch.exp(own - batch.log_probs).clamp(max=1.0)
    return Batch(batch.observations, batch.actions, own, batch.advantages, weights, 0), returns


def joined(batches: Sequence[Batch], rng: torch.Generator | None = None) -> Batch:
    """One batch of all samples, drawn by `rng`."""
    return Batch(
        torch.cat([one.observations for one in batches]),
        torch.cat([one.actions for one in batches]),
        torch.cat([one.log_probs for one in batches]),
        torch.cat([one.advantages for one in batches]),
        torch.cat([one.weights for one in batches]),
        sum(one.own for one in batches),
        rng,
    )


def ppo_update(
    policy: ActingPolicy, optimizer: torch.optim.Optimizer, batch: Batch, settings: PpoSettings, minibatch: int
) -> float:
    """Some epochs over a batch; returns how far the policy has moved (approximate KL divergence)."""
    moved = 0.0
    for _ in range(settings.epochs):
        for pick in batch.minibatches(minibatch):
            log_probs, entropy = policy.evaluate(batch.observations[pick], batch.actions[pick])
            change = log_probs - batch.log_probs[pick]
            ratio, advantage = change.exp(), batch.advantages[pick]
            clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            gain = torch.minimum(ratio * advantage, clipped * advantage) + settings.entropy * entropy
            weights = batch.weights[pick]
            loss = -(weights * gain).sum() / weights.sum().clamp(min=1.0)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(policy.parameters(), settings.max_gradient)
            optimizer.step()
            moved = float((ratio - 1 - change).mean().detach())
    return moved


def step_ends(terminated: NDArray[np.bool_], truncated: NDArray[np.bool_]) -> Ends:
    """How steps ended, by the flags of gymnasium."""
    return np.where(terminated, TERMINATED, np.where(truncated, TRUNCATED, GOES_ON)).astype(np.uint8)
