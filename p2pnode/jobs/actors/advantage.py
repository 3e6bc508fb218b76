"""Advantages and returns of a rollout. Pure: arrays in, arrays out.

A rollout has T steps of N environments. `ends` says how each step ended: it went on, the episode terminated, or it was
cut off (truncated), after which the value of the state that follows still counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Ends = NDArray[np.uint8]

GOES_ON, TERMINATED, TRUNCATED = 0, 1, 2
CLIP = 10.0  # bound of normalised rewards, and of values and targets in multiples of what a value network learns
_LEAST_SCALE = 1e-4


def following_values(values: Array, ends: Ends) -> tuple[Array, Array]:
    """Values of the states [T, N], and of the states after them.

    `values` has the values of a rollout's rows in their order: T·N states, N states after the last step, and one state
    for each truncated step.
    """
    steps, envs = ends.shape
    count = steps * envs
    states = values[:count].reshape(steps, envs)
    after = np.concatenate([states[1:], values[count : count + envs].reshape(1, envs)])
    after = np.where(ends == TERMINATED, np.float32(0.0), after)
    cut = np.flatnonzero(ends.reshape(-1) == TRUNCATED)
    after.reshape(-1)[cut] = values[count + envs : count + envs + len(cut)]
    return states, after


def advantages(rewards: Array, ends: Ends, values: Array, gamma: float, lam: float) -> tuple[Array, Array]:
    """Generalised advantage estimates and λ-returns, both [T, N]. With λ = 1 the returns are discounted sums."""
    states, after = following_values(values, ends)
    errors = rewards + np.float32(gamma) * after - states
    keep = np.where(ends == GOES_ON, np.float32(gamma * lam), np.float32(0.0))
    found = np.zeros_like(errors)
    total = np.zeros(errors.shape[1], np.float32)
    for step in range(len(errors) - 1, -1, -1):
        total = errors[step] + keep[step] * total
        found[step] = total
    return found, np.clip(found + states, -CLIP * CLIP, CLIP * CLIP)


def normalised(values: Array) -> Array:
    """The same with mean 0 and standard deviation 1; zeros where all are equal."""
    deviation = float(values.std())
    if deviation < 1e-8:
        return np.zeros_like(values)
    found: Array = ((values - values.mean()) / np.float32(deviation)).astype(np.float32)
    return found


class RewardScale:
    """Divides rewards by the running standard deviation of discounted returns, so that different rewards mix.

    The scale is that of all rewards so far (Welford's sums); one environment after the other gives the same.
    """

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self.count = 0.0
        self.mean = 0.0
        self.squares = 0.0  # sum of squared distances from the mean
        self._returns: NDArray[np.float64] = np.zeros(0)

    @property
    def scale(self) -> float:
        """The standard deviation so far; 1 before the first reward."""
        if self.count < 2:
            return 1.0
        return max(_LEAST_SCALE, float(np.sqrt(self.squares / self.count)))

    def apply(self, rewards: Array, ends: Ends) -> Array:
        """Takes the rewards of a rollout into account and returns them divided by the scale, clipped."""
        if len(self._returns) != rewards.shape[1]:
            self._returns = np.zeros(rewards.shape[1])
        seen = np.empty(rewards.shape, np.float64)
        for step in range(len(rewards)):
            self._returns = self._gamma * self._returns + rewards[step]
            seen[step] = self._returns
            self._returns = np.where(ends[step] == GOES_ON, self._returns, 0.0)
        self._add(seen.reshape(-1))
        return np.clip(rewards / np.float32(self.scale), -CLIP, CLIP).astype(np.float32)

    def _add(self, values: NDArray[np.float64]) -> None:
        count, mean = len(values), float(values.mean())
        total, apart = self.count + count, mean - self.mean
        self.squares += float(((values - mean) ** 2).sum()) + apart * apart * self.count * count / total
        self.mean += apart * count / total
        self.count = total

    def state(self) -> NDArray[np.float64]:
        return np.array([self.count, self.mean, self.squares])

    def restore(self, state: NDArray[np.float64]) -> None:
        """ValueError when these are no sums of a scale."""
        if state.shape != (3,) or not np.isfinite(state).all() or state[0] < 0 or state[2] < 0:
            raise ValueError("the saved scale of rewards is damaged")
        self.count, self.mean, self.squares = (float(value) for value in state)
