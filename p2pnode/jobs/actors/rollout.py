"""A rollout: what a policy met in some steps of several environments, and how it travels. Pure.

Rows of `features` are observations, padded with the task's context and zeros to the width that all members agreed on:
T·N states, then the N states after the last step, then one state for each truncated step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .advantage import TRUNCATED, Array, Ends

MAX_STEPS = 4096  # of all environments together, in one rollout
MAX_ENVS = 256
MAX_FEATURES = 256
MAX_FEATURE_BYTES = 512 << 10  # of one rollout's features on the wire, and of its actions
MAX_ACTION = 64  # numbers in one action
MAX_FEATURE = 60_000.0  # f16 ends at 65,504
MAX_LOG = 50.0  # of a log-probability, either way


@dataclass(frozen=True)
class Rollout:
    """Some steps of several environments."""

    features: Array  # [rows, F]
    rewards: Array  # [T, N], normalised
    ends: Ends  # [T, N]
    actions: NDArray[np.float32]  # [T·N, A]; a discrete action is one number
    log_probs: Array  # [T·N], of the actions under the policy that chose them

    @property
    def steps(self) -> int:
        """Steps of all environments together."""
        return int(self.ends.size)

    @property
    def rows(self) -> int:
        return rows_of(self.ends)


def rows_of(ends: Ends) -> int:
    """How many states a rollout with these ends has."""
    return int(ends.size + ends.shape[1] + (ends == TRUNCATED).sum())


def steps_of_rollout(wanted: int, envs: int, numbers: int) -> int:
    """Steps that each environment takes in a rollout of about `wanted` steps, so that it can travel in one message.

    `numbers` are those of a state and an action.
    """
    rows = MAX_FEATURE_BYTES // (2 * numbers)
    most = min(MAX_STEPS, (rows - envs) // 2)  # every step may be truncated, which takes another row
    return max(1, min(wanted, most) // envs)


def padded(observations: Array, context: tuple[float, ...], width: int) -> Array:
    """Observations [rows, D] with the context after them, filled up with zeros. ValueError when they are too wide."""
    rows, own = observations.shape
    if own + len(context) > width:
        raise ValueError(f"needs features={own + len(context)}")
    features = np.zeros((rows, width), np.float32)
    features[:, :own] = observations
    features[:, own : own + len(context)] = context
    return np.clip(features, -MAX_FEATURE, MAX_FEATURE)


def encode_halves(values: Array) -> bytes:
    """Numbers as 16-bit floats."""
    return np.ascontiguousarray(np.clip(values, -MAX_FEATURE, MAX_FEATURE), "<f2").tobytes()


def decode_halves(data: bytes, shape: tuple[int, ...], bound: float = MAX_FEATURE) -> Array:
    """Numbers that `encode_halves` wrote. ValueError for another number of them, or one beyond the bound."""
    count = int(np.prod(shape))
    if len(data) != 2 * count:
        raise ValueError(f"{len(data)} bytes where {2 * count} should be")
    values = np.frombuffer(data, "<f2").astype(np.float32).reshape(shape)
    if not (np.abs(values) <= bound).all():  # also refuses what is not a number
        raise ValueError("a number that is not finite, or too large")
    return values


def decode_ends(data: bytes, steps: int, envs: int) -> Ends:
    """ValueError unless these are ends of so many steps."""
    if not (1 <= envs <= MAX_ENVS and steps >= 1 and steps * envs <= MAX_STEPS and len(data) == steps * envs):
        raise ValueError(f"a rollout of {steps} steps in {envs} environments does not fit its {len(data)} ends")
    ends = np.frombuffer(data, np.uint8).reshape(steps, envs)
    if ends.max() > TRUNCATED:
        raise ValueError("a step ends in an unknown way")
    return ends
