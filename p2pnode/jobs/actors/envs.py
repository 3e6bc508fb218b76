"""Environments of gymnasium as this package uses them: several that take their steps together, flat observations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...wire.errors import LocalProblem, TaskProblem, UsageError
from .advantage import Array
from .ppo import ActionSpace, EnvBatch, EnvStep, step_ends
from .rollout import MAX_ACTION, MAX_ENVS, MAX_FEATURES

MISSING = "reinforcement learning needs gymnasium: pip install 'p2pnode[rl]'"


def open_envs(make: Callable[[], Any], count: int) -> EnvBatch:
    """`count` environments. UsageError for spaces that are not supported, LocalProblem where gymnasium is missing."""
    try:
        import gymnasium
    except ImportError:
        raise LocalProblem(MISSING) from None
    if not 1 <= count <= MAX_ENVS:
        raise UsageError(f"envs={count} must lie between 1 and {MAX_ENVS}")
    first = _made(make)
    if isinstance(first, gymnasium.vector.VectorEnv):
        return VectorEnvs(first)
    if hasattr(first, "actions") and hasattr(first, "width"):  # an EnvBatch of the user's own
        batch: EnvBatch = first
        return batch
    if not isinstance(first, gymnasium.Env):
        raise UsageError(f"env() must return a gymnasium environment, not {type(first).__name__}")
    return GymEnvs([first, *(_made(make) for _ in range(count - 1))])


def _made(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ModuleNotFoundError as error:
        raise LocalProblem(MISSING if error.name == "gymnasium" else f"env() needs the module {error.name!r}") from None
    except (LocalProblem, UsageError):
        raise
    except Exception as error:  # the user's code may raise anything
        raise TaskProblem(f"env() raised {type(error).__name__}: {error}") from error


class ObservationReader:
    """Turns observations of a space into flat numbers: those of a Box as they are, a Discrete one as a unit vector."""

    def __init__(self, space: Any) -> None:
        """UsageError for any other space."""
        from gymnasium.spaces import Box, Discrete

        self._choices = int(space.n) if isinstance(space, Discrete) else 0
        self._start = int(space.start) if isinstance(space, Discrete) else 0
        if not isinstance(space, Box | Discrete):
            raise UsageError(f"observations of the space {type(space).__name__} are not supported; use Box or Discrete")
        self.width = self._choices or int(np.prod(space.shape or ()))
        if not 1 <= self.width <= MAX_FEATURES:
            raise UsageError(f"observations of {self.width} numbers are too wide; at most {MAX_FEATURES} are possible")

    def read(self, observations: Any, count: int) -> Array:
        """[count, width] numbers."""
        if self._choices:
            chosen = np.asarray(observations).reshape(count).astype(np.int64) - self._start
            return np.eye(self._choices, dtype=np.float32)[chosen]
        return np.asarray(observations, np.float32).reshape(count, self.width)


def read_actions(space: Any) -> ActionSpace:
    """UsageError unless actions are Discrete, or a bounded or unbounded Box of floats."""
    from gymnasium.spaces import Box, Discrete

    if isinstance(space, Discrete):
        return ActionSpace(int(space.n), start=int(space.start))
    if isinstance(space, Box) and np.issubdtype(space.dtype, np.floating):
        size = int(np.prod(space.shape))
        if size > MAX_ACTION:
            raise UsageError(f"actions of {size} numbers are too wide; at most {MAX_ACTION} are possible")
        low, high = (np.asarray(bound, np.float32).reshape(-1) for bound in (space.low, space.high))
        return ActionSpace(0, size, low, high, tuple(space.shape))
    raise UsageError(f"actions of the space {type(space).__name__} are not supported; use Discrete or a Box of floats")


class GymEnvs:
    """Single environments, one after the other. An episode that ends begins anew within the same step (EnvBatch)."""

    def __init__(self, envs: list[Any]) -> None:
        self.count = len(envs)
        self.actions = read_actions(envs[0].action_space)
        self._reader = ObservationReader(envs[0].observation_space)
        self.width = self._reader.width
        self._envs = envs

    def reset(self, seed: int) -> Array:
        found = [env.reset(seed=(seed + number) % (1 << 31))[0] for number, env in enumerate(self._envs)]
        return self._reader.read(np.stack([np.asarray(one) for one in found]), self.count)

    def step(self, actions: NDArray[np.float32]) -> EnvStep:
        observations, finals = [], []
        rewards = np.empty(self.count)
        terminated, truncated = np.zeros(self.count, bool), np.zeros(self.count, bool)
        for number, (env, action) in enumerate(zip(self._envs, self.actions.for_env(actions), strict=True)):
            found, rewards[number], terminated[number], truncated[number], _ = env.step(action)
            if terminated[number] or truncated[number]:
                if not terminated[number]:
                    finals.append(self._reader.read(found, 1))
                found = env.reset()[0]
            observations.append(np.asarray(found))
        last = np.concatenate(finals) if finals else np.zeros((0, self.width), np.float32)
        now = self._reader.read(np.stack(observations), self.count)
        return EnvStep(now, rewards, step_ends(terminated, truncated), last)

    def close(self) -> None:
        for env in self._envs:
            env.close()


class VectorEnvs:
    """A vector environment of gymnasium that resets within the same step (EnvBatch)."""

    def __init__(self, env: Any) -> None:
        """UsageError for one that takes a step of its own for resetting: that step would count as experience."""
        from gymnasium.vector import AutoresetMode

        mode = env.metadata.get("autoreset_mode")
        if mode != AutoresetMode.SAME_STEP:
            raise UsageError("env(): make the vector environment with autoreset_mode=AutoresetMode.SAME_STEP")
        self.count = int(env.num_envs)
        if not 1 <= self.count <= MAX_ENVS:
            raise UsageError(f"env() has {self.count} environments; at most {MAX_ENVS} are possible")
        self.actions = read_actions(env.single_action_space)
        self._reader = ObservationReader(env.single_observation_space)
        self.width = self._reader.width
        self._env = env

    def reset(self, seed: int) -> Array:
        return self._reader.read(self._env.reset(seed=seed % (1 << 31))[0], self.count)

    def step(self, actions: NDArray[np.float32]) -> EnvStep:
        found, rewards, terminated, truncated, info = self._env.step(np.stack(self.actions.for_env(actions)))
        cut = np.flatnonzero(np.asarray(truncated) & ~np.asarray(terminated))
        finals = [self._reader.read(info["final_obs"][env], 1) for env in cut]
        last = np.concatenate(finals) if finals else np.zeros((0, self.width), np.float32)
        return EnvStep(self._reader.read(found, self.count), np.asarray(rewards, np.float64),
                       step_ends(np.asarray(terminated), np.asarray(truncated)), last)  # fmt: skip

    def close(self) -> None:
        self._env.close()
