"""What members of an actors job say to each other."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from ...wire.messages import Message
from ...wire.types import Count
from ..leases.lease import Lease, Renewal
from .advantage import CLIP
from .ppo import ActionSpace
from .rollout import (
    MAX_ACTION,
    MAX_ENVS,
    MAX_FEATURE_BYTES,
    MAX_LOG,
    MAX_STEPS,
    Rollout,
    decode_ends,
    decode_halves,
    encode_halves,
    rows_of,
)

MAX_ROWS = 2 * MAX_STEPS + MAX_ENVS
CURVE = 24  # points

Number = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]  # bounds refuse what is not finite, too
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Halves = Annotated[bytes, msgspec.Meta(max_length=2 * MAX_STEPS)]


class LaptopFacts(msgspec.Struct, frozen=True, array_like=True):
    """How a laptop gets on, as it says."""

    task: Annotated[str, msgspec.Meta(max_length=40)]
    steps: Count  # of its environments
    steps_per_second: Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]
    reward: Number | None = None  # mean return of its latest episodes
    version: Count = 0  # gradient steps in the critic it uses
    in_time: Share | None = None  # share of the owner's values that came in time
    critic: Annotated[str, msgspec.Meta(max_length=80)] = ""  # which critic it uses, and why
    spaces: Annotated[bytes, msgspec.Meta(max_length=8)] = b""  # hash of its spaces, where it shares rollouts
    curve: Annotated[tuple[Number, ...], msgspec.Meta(max_length=CURVE)] = ()  # its return over time, the latest last


class MemberFacts(msgspec.Struct, frozen=True, array_like=True):
    """What a member says of itself and of the critic's lease."""

    lease: Lease | None = None
    renewal: Renewal | None = None
    prefers: bool = False  # it wants to own the critic whenever it is there
    laptop: LaptopFacts | None = None  # None: it has no policy


class MeetLaptop(Message, frozen=True, tag="meet actors"):
    """Says what this node knows, and asks what the peer knows."""

    facts: MemberFacts


class LaptopMet(Message, frozen=True, tag="met actors"):
    facts: MemberFacts


class Experience(msgspec.Struct, frozen=True, array_like=True):
    """A rollout. Its arrays hold 16-bit floats (rollout.py)."""

    envs: Annotated[int, msgspec.Meta(ge=1, le=MAX_ENVS)]
    ends: Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_STEPS)]
    features: Annotated[bytes, msgspec.Meta(max_length=MAX_FEATURE_BYTES)]
    rewards: Halves
    action_size: Annotated[int, msgspec.Meta(ge=0, le=MAX_ACTION)] = 0  # 0: without actions
    actions: Annotated[bytes, msgspec.Meta(max_length=2 * MAX_STEPS * MAX_ACTION)] = b""
    log_probs: Halves = b""


class Judge(Message, frozen=True, tag="judge"):
    """Asks the critic's owner for the values of a rollout's states, from which the critic learns too."""

    ticket: Count  # rises; a rollout that comes twice is answered twice and learned once
    experience: Experience


class Judged(Message, frozen=True, tag="judged"):
    ticket: Count
    version: Count
    values: Annotated[bytes, msgspec.Meta(max_length=2 * MAX_ROWS)]


class ShareRollout(Message, frozen=True, tag="share rollout"):
    """Gives a rollout to a member with the same spaces."""

    ticket: Count
    spaces: Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]
    experience: Experience


class RolloutShared(Message, frozen=True, tag="rollout shared"):
    pass


def write_experience(rollout: Rollout, actions: bool) -> Experience:
    """A rollout as it travels, with the policy's actions or without."""
    envs, ends = rollout.ends.shape[1], rollout.ends.tobytes()
    features, rewards = encode_halves(rollout.features), encode_halves(rollout.rewards)
    if not actions:
        return Experience(envs, ends, features, rewards)
    size = rollout.actions.shape[1]
    return Experience(
        envs, ends, features, rewards, size, encode_halves(rollout.actions), encode_halves(rollout.log_probs)
    )


def read_experience(said: Experience, width: int, actions: ActionSpace | None = None) -> Rollout:
    """The rollout that a member sent, rewards clipped. ValueError when its parts do not fit each other.

    `width` is that of the run's features; with `actions` it must have actions of that space.
    """
    ends = decode_ends(said.ends, len(said.ends) // said.envs, said.envs)
    features = decode_halves(said.features, (rows_of(ends), width))
    rewards = np.clip(decode_halves(said.rewards, ends.shape), -CLIP, CLIP)
    if actions is None:
        return Rollout(features, rewards, ends, np.zeros((ends.size, 0), np.float32), np.zeros(ends.size, np.float32))
    if said.action_size != actions.numbers:
        raise ValueError(f"actions of {said.action_size} numbers where {actions.numbers} should be")
    chosen = decode_halves(said.actions, (ends.size, said.action_size))
    if actions.choices and not ((chosen >= 0) & (chosen < actions.choices) & (chosen == np.floor(chosen))).all():
        raise ValueError("an action that the space does not have")
    return Rollout(features, rewards, ends, chosen, decode_halves(said.log_probs, (ends.size,), MAX_LOG))
