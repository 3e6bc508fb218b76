"""The contract of a merge policy: a state machine of plain values, with bytes in and bytes out.

One round of a node, whatever its policy:

    x = policy.start()                        where local steps begin
    after = K local steps from x              (elsewhere; peers may be asked and answered meanwhile)
    draft = policy.record(x, after, facts)    heavy: what this round has to say
    policy.publish(draft)                     light: say it; what it returns must be on disk before anyone hears it
    for each partner:                         light, while the next round trains
        answer = partner.answer(me, policy.ask(partner))
        push = policy.take(partner, answer)   → partner.take(me, push) when not empty
    policy.merge()                            heavy: what came in becomes the next start

Heavy methods run in the compute thread and light ones on the event loop, at the same time: what they share changes in
light methods only (an inbox, a log), and `merge` takes what is there when it begins. No method waits, or reads clocks
or files. A partner's bytes that break the format raise ValueError, which costs it standing and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..compression.selector import Background, run_now
from ..compression.weights import Floats, blocks
from ..storage.checkpoints import Arrays
from ..wire.ids import Identity, PeerId
from .capabilities import Capabilities
from .snapshots.outline import Snapshot


@dataclass(frozen=True)
class RoundFacts:
    """What a round's training was like; policies may publish it."""

    steps: int
    loss: float
    samples: int
    peers: int  # members of the circle this node sees, itself included
    byte_budget: int | None = None  # the most this round's message should be, by what the link bears; None: unknown


@dataclass(frozen=True)
class MergeResult:
    """What a merge did, for people and for the convergence monitor."""

    why: str
    entries: int  # things of others that came in since the last merge
    update_norm: float  # norm of the change of the shared weights, relative to their norm
    values: int = 0  # weights that this node's latest message carried, where messages are sparse


@dataclass(frozen=True)
class Pace:
    """How a round should go: mean local steps it may take, the factor on the learning rate, steps the run has done."""

    steps: float = inf
    rate: float = 1.0
    at: int = 0


class Policy(Protocol):
    """One model's merging at one node. Subclass it: what most policies need not say has a default."""

    can: Capabilities = Capabilities()
    snapshots_in_background: bool = False  # whether `snapshot` may run while heavy methods do

    def start(self) -> Floats:
        """Where the next local steps begin. A fresh array."""
        ...

    def readout(self) -> Floats:
        """What is worth keeping, evaluating and exporting. A fresh array."""
        ...

    def weights(self) -> Floats:
        """The shared weights as they are now. A fresh array."""
        return self.start()

    def pace(self, members: int) -> Pace:
        """How the next round should go in a circle of `members`, this node included."""
        return Pace()

    def record(self, begun: Floats, after: Floats, facts: RoundFacts) -> object:
        """Heavy. What this round has to say; `begun` is what `start` gave, `after` what local steps made of it."""
        ...

    def publish(self, draft: object) -> bytes:
        """Light. Make it known to whoever asks from now on; returns what must be durable first (may be empty)."""
        ...

    def ask(self, partner: PeerId) -> bytes:
        """Light. What to ask a partner."""
        ...

    def answer(self, partner: PeerId, request: bytes) -> bytes:
        """Light. What to answer a partner that asks; ValueError when it does not ask sensibly."""
        ...

    def take(self, partner: PeerId, answer: bytes) -> bytes:
        """Light. Take in a partner's answer or push; returns what to push back to it (may be empty)."""
        ...

    def merge(self) -> MergeResult:
        """Heavy. Let what came in count."""
        ...

    def snapshot(self, at: bytes = b"") -> Snapshot | None:
        """Heavy. What a newcomer needs to start where this node is, or was `at` the place of another's snapshot.

        None when this node cannot say. ValueError when `at` is no place of this model.
        """
        ...

    def adopt(self, snapshot: Snapshot) -> None:
        """Heavy. Start where another node is; ValueError when that is not a snapshot of this model."""
        ...

    def state(self) -> Arrays:
        """Heavy. All that a restart needs."""
        ...

    def restore(self, state: Mapping[str, npt.NDArray[Any]], journal: list[bytes]) -> None:
        """Go on from `state` and from what `publish` returned after it was taken; ValueError when it does not fit."""
        ...


@dataclass(frozen=True)
class PolicySetup:
    """What a policy begins with: the run's genesis weights on the grid, who we are, and the policy's settings."""

    genesis: npt.NDArray[np.int32]
    identity: Identity
    lineage: str  # hex, 32 bytes
    model: str
    layout: str  # hash of the weights' layout
    settings: Mapping[str, float]
    seed: int
    layers: tuple[int, ...] = ()  # sizes of the layers; empty: one
    background: Background = run_now  # runs small work that training does not wait for


MakePolicy = Callable[[PolicySetup], Policy]


def relative_change(before: Floats, after: Floats) -> float:
    """Norm of a change relative to the norm of what changed."""
    size = float(np.linalg.norm(before))
    parts = (after[block] - before[block] for block in blocks(len(before)))
    return sqrt(sum(float(part @ part) for part in parts)) / max(size, 1e-12)
