"""Environments of the benchmark `actors`, many at a time in numpy: variants of CartPole, Acrobot and MountainCar.

The dynamics are those of gymnasium's classic control (tests/jobs/actors compares them step by step).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from p2pnode.jobs.actors.ppo import ActionSpace, EnvStep, step_ends

Array = NDArray[np.float32]
Doubles = NDArray[np.float64]


class NumpyEnvs:
    """Environments whose states are the rows of one array (EnvBatch)."""

    limit = 500  # steps of an episode
    width = 0

    def __init__(self, count: int, choices: int, size: int) -> None:
        self.count = count
        self.actions = ActionSpace(choices)
        self._state = np.zeros((count, size))
        self._age = np.zeros(count, np.int64)
        self._rng = np.random.default_rng(0)
        self._rewards = np.zeros(count)
        self._steps = 0  # of all environments together
        self.episodes: list[tuple[int, float]] = []  # steps so far and return of each that ended
        self.raises_after = 0  # steps; 0: never

    def reset(self, seed: int) -> Array:
        self._rng = np.random.default_rng(seed)
        self._state = self.begin(self._rng, self.count)
        self._age[:] = 0
        return self.observe(self._state)

    def step(self, actions: NDArray[np.float32]) -> EnvStep:
        self._state, rewards, terminated = self.move(self._state, actions[:, 0])
        self._age += 1
        self._steps += self.count
        self._rewards += rewards
        if self.raises_after and self._steps > self.raises_after:
            raise RuntimeError("the environment is broken")
        truncated = (self._age >= self.limit) & ~terminated
        finals = self.observe(self._state[truncated])
        done = np.flatnonzero(terminated | truncated)
        if len(done):
            returned = self.returned(self._rewards[done], self._age[done])
            self.episodes += [(self._steps, float(reward)) for reward in returned]
            self._rewards[done] = 0.0
            self._state[done] = self.begin(self._rng, len(done))
            self._age[done] = 0
        return EnvStep(self.observe(self._state), rewards, step_ends(terminated, truncated), finals)

    def close(self) -> None:
        pass

    def begin(self, rng: np.random.Generator, count: int) -> Doubles:
        raise NotImplementedError

    def move(self, state: Doubles, actions: NDArray[np.float32]) -> tuple[Doubles, Doubles, NDArray[np.bool_]]:
        raise NotImplementedError

    def observe(self, state: Doubles) -> Array:
        return state.astype(np.float32)

    def returned(self, rewards: Doubles, ages: NDArray[np.int64]) -> Doubles:
        """The returns of episodes that ended, by their rewards and lengths."""
        return rewards


class CartPoles(NumpyEnvs):
    width = 4

    def __init__(self, count: int, pole: float = 0.5, gravity: float = 9.8, force: float = 10.0) -> None:
        super().__init__(count, 2, 4)
        self._pole, self._gravity, self._force = pole, gravity, force

    def begin(self, rng: np.random.Generator, count: int) -> Doubles:
        return rng.uniform(-0.05, 0.05, (count, 4))

    def move(self, state: Doubles, actions: NDArray[np.float32]) -> tuple[Doubles, Doubles, NDArray[np.bool_]]:
        x, v, angle, turn = state.T
        force = np.where(actions > 0.5, self._force, -self._force)
        sine, cosine, length = np.sin(angle), np.cos(angle), 0.1 * self._pole
        push = (force + length * turn**2 * sine) / 1.1
        bend = (self._gravity * sine - cosine * push) / (self._pole * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        pull = push - length * bend * cosine / 1.1
        after = np.stack([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend], axis=1)
        fallen = (np.abs(after[:, 0]) > 2.4) | (np.abs(after[:, 2]) > 12 * np.pi / 180)
        return after, np.ones(len(after)), fallen


class Acrobots(NumpyEnvs):
    width = 6

    def __init__(self, count: int, length: float = 1.0, mass: float = 1.0, torque: float = 1.0) -> None:
        super().__init__(count, 3, 4)
        self._length, self._mass, self._torque = length, mass, torque

    def begin(self, rng: np.random.Generator, count: int) -> Doubles:
        return rng.uniform(-0.1, 0.1, (count, 4))

    def observe(self, state: Doubles) -> Array:
        one, two = state[:, 0], state[:, 1]
        parts = [np.cos(one), np.sin(one), np.cos(two), np.sin(two), state[:, 2], state[:, 3]]
        return np.stack(parts, axis=1).astype(np.float32)

    def move(self, state: Doubles, actions: NDArray[np.float32]) -> tuple[Doubles, Doubles, NDArray[np.bool_]]:
        torque, step = self._torque * (actions.astype(np.float64) - 1.0), 0.2
        k1 = self._slope(state, torque)
        k2 = self._slope(state + step / 2 * k1, torque)
        k3 = self._slope(state + step / 2 * k2, torque)
        k4 = self._slope(state + step * k3, torque)
        after = state + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        after[:, :2] = (after[:, :2] + np.pi) % (2 * np.pi) - np.pi
        after[:, 2] = np.clip(after[:, 2], -4 * np.pi, 4 * np.pi)
        after[:, 3] = np.clip(after[:, 3], -9 * np.pi, 9 * np.pi)
        up = -np.cos(after[:, 0]) - np.cos(after[:, 1] + after[:, 0]) > 1.0
        return after, np.where(up, 0.0, -1.0), up

    def _slope(self, state: Doubles, torque: Doubles) -> Doubles:
        one, two, w1, w2 = state.T
        m, length, centre, inertia, g = self._mass, self._length, 0.5 * self._length, 1.0, 9.8
        cosine, sine = np.cos(two), np.sin(two)
        d1 = centre**2 + m * (length**2 + centre**2 + 2 * length * centre * cosine) + 2 * inertia
        d2 = m * (centre**2 + length * centre * cosine) + inertia
        phi2 = m * centre * g * np.cos(one + two - np.pi / 2)
        phi1 = (
            -m * length * centre * w2**2 * sine
            - 2 * m * length * centre * w2 * w1 * sine
            + (centre + m * length) * g * np.cos(one - np.pi / 2)
            + phi2
        )
        a2 = (torque + d2 / d1 * phi1 - m * length * centre * w1**2 * sine - phi2) / (
            m * centre**2 + inertia - d2**2 / d1
        )
        return np.stack([w1, w2, -(d2 * a2 + phi1) / d1, a2], axis=1)


class MountainCars(NumpyEnvs):
    """The car in the valley. Besides −1 a step it is rewarded for the energy that it gains, or it would learn nothing.

    Episodes count without that (potential-based shaping, so the best policy is the same).
    """

    width = 2
    limit = 200
    shaping = 100_000.0  # for the energy of one unit; 0.003 carry the car over the hill
    top_speed = 0.07

    def __init__(self, count: int, force: float = 0.001, gravity: float = 0.0025) -> None:
        super().__init__(count, 3, 2)
        self._force, self._gravity = force, gravity

    def begin(self, rng: np.random.Generator, count: int) -> Doubles:
        return np.stack([rng.uniform(-0.6, -0.4, count), np.zeros(count)], axis=1)

    def observe(self, state: Doubles) -> Array:
        """Position, and velocity as a share of the highest one."""
        return (state / (1.0, self.top_speed)).astype(np.float32)

    def move(self, state: Doubles, actions: NDArray[np.float32]) -> tuple[Doubles, Doubles, NDArray[np.bool_]]:
        x, v = state.T
        push = (actions.astype(np.float64) - 1.0) * self._force
        v = np.clip(v + push - self._gravity * np.cos(3 * x), -self.top_speed, self.top_speed)
        x = np.clip(x + v, -1.2, 0.6)
        v = np.where((x <= -1.2) & (v < 0), 0.0, v)
        after = np.stack([x, v], axis=1)
        gained = self._energy(after) - self._energy(state)
        return after, self.shaping * gained - 1.0, (x >= 0.5) & (v >= 0.0)

    def returned(self, rewards: Doubles, ages: NDArray[np.int64]) -> Doubles:
        return -ages.astype(np.float64)

    def _energy(self, state: Doubles) -> Doubles:
        energy: Doubles = 0.5 * state[:, 1] ** 2 + self._gravity * np.sin(3 * state[:, 0]) / 3
        return energy
