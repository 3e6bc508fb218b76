"""The contract of a merge policy: a state machine of plain values, with bytes in and bytes out.

One round of a node, whatever its policy:

    x = policy.start()                        the weights where local steps begin
    after = K local steps from x              (the trainer does them; peers ask and answer meanwhile)
    draft = policy.record(x, after, facts)    heavy: what this round will publish
    policy.publish(draft)                     light: what it returns must be on disk before any peer gets it
    for each partner:                         light, while the next round trains
        answer = partner.answer(me, policy.ask(partner))
        push = policy.take(partner, answer)   → partner.take(me, push) when not empty
    policy.merge()                            heavy: what arrived becomes part of the next start

`start` is not the shared weights (`weights`): a delta set adds a part of this node's own progress that others do not
have yet. So a driver gives `record` the very vector that `start` returned. Where the policy can (`can.corrections`), it
calls `correct(x, now)` between steps, which moves both by the same vector, and gives `record` the moved ones.
A driver that does not do the steps itself, and so finds weights `now` that went on while it recorded `after`, adds
`start() − after` to them instead of replacing them: what it begins at is then `start()`, and `now − after` is kept as
the first progress of the new round.

Heavy methods run in the compute thread and light ones on the event loop, at the same time. The state they share (an
inbox, a log) changes in light methods only, and `merge` takes what is there when it begins. No method waits, or reads
clocks or files. A partner's bytes that break the format raise ValueError, cost it reputation and change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..compression.selector import Background, run_now
from ..compression.weights import Floats, blocks, dot, norm
from ..storage.checkpoints import Arrays
from ..wire.ids import Identity, PeerId
from .capabilities import Capabilities
from .snapshots.outline import Snapshot


@dataclass(frozen=True)
class RoundFacts:
    """Facts about a round's training, which policies may publish."""

    steps: int
    loss: float
    samples: int
    peers: int  # members of the circle this node sees, itself included
    byte_budget: int | None = None  # the largest message that the link can carry in a round; None: unknown
    density: float = 1.0  # factor on the usual share of the coordinates that is sent


@dataclass(frozen=True)
class MergeResult:
    """What a merge did, for views and for the convergence monitor."""

    summary: str
    entries: int  # contributions of others since the last merge
    update_norm: float  # norm of the change of the shared weights, relative to their norm
    values: int = 0  # weights that this node's latest message carried, where messages are sparse


@dataclass(frozen=True)
class Pace:
    """How a round should go: mean local steps it may take, the factor on the learning rate, steps the run has done."""

    steps: float = inf
    rate: float = 1.0
    at: int = 0


class Policy(Protocol):
    """Merges one model at one node. Policies subclass it, for the defaults."""

    can: Capabilities = Capabilities()
    snapshots_in_background: bool = False  # whether `snapshot` may run while heavy methods do

    def start(self) -> Floats:
        """The weights where the next local steps begin. A fresh array.

        They stay the same until something arrives or a round is recorded and published; also over a restart.
        """
        ...

    def readout(self) -> Floats:
        """The weights to evaluate and export. A fresh array."""
        ...

    def weights(self) -> Floats:
        """The shared weights as they are now, without what only this node knows. A fresh array."""
        return self.start()

    def pace(self, members: int) -> Pace:
        """How the next round should go in a circle of `members`, this node included."""
        return Pace()

    def record(self, begun: Floats, after: Floats, facts: RoundFacts) -> object:
        """Heavy. What this round will publish: the progress from `begun` to `after`.

        `begun` is what `start` returned, moved by what `correct` let in; `after` is the result of training.
        """
        ...

    def publish(self, draft: object) -> bytes:
        """Light. Give a draft to whoever asks from now on; returns what must be on disk first (may be empty)."""
        ...

    def ask(self, partner: PeerId) -> bytes:
        """Light. The question to a partner."""
        ...

    def answer(self, partner: PeerId, request: bytes) -> bytes:
        """Light. The answer to a partner's question; ValueError when the question is malformed."""
        ...

    def take(self, partner: PeerId, answer: bytes) -> bytes:
        """Light. Take in a partner's answer or push; returns what to push to it in turn (may be empty)."""
        ...

    def merge(self) -> MergeResult:
        """Heavy. Merge what has arrived into the weights."""
        ...

    def snapshot(self, at: bytes = b"") -> Snapshot | None:
        """Heavy. What a newcomer needs to start where this node is, or was `at` the position of another's snapshot.

        None when this node does not know that position. ValueError when `at` is not a position of this model.
        """
        ...

    def adopt(self, snapshot: Snapshot) -> None:
        """Heavy. Start where another node is; ValueError when that is not a snapshot of this model."""
        ...

    def state(self) -> Arrays:
        """Heavy. Everything that a restart needs."""
        ...

    def restore(self, state: Mapping[str, npt.NDArray[Any]], journal: list[bytes]) -> None:
        """Go on from `state` and from what `publish` returned since it was saved; ValueError when it is not valid."""
        ...


@dataclass(frozen=True)
class PolicySetup:
    """What a policy is made from: the run's genesis weights on the grid, this node's identity, and the settings."""

    genesis: npt.NDArray[np.int32]
    identity: Identity
    lineage: str  # hex, 32 bytes
    model: str
    layout: str  # hash of the weights' layout
    settings: Mapping[str, float]
    seed: int
    layers: tuple[int, ...] = ()  # sizes of the layers; empty: one
    background: Background = run_now  # runs small work that training does not wait for
    founder: str = ""  # of the run; "": anybody may be an author without admission
    moderators: tuple[str, ...] = ()  # whose veto excludes an author alone
    planned_steps: int = 0  # local steps of each member that the run is planned for; 0: it has no end


MakePolicy = Callable[[PolicySetup], Policy]


def relative_change(before: Floats, after: Floats) -> float:
    """The norm of a change, relative to the norm of the weights before it."""
    size = norm(before)
    parts = (after[block] - before[block] for block in blocks(len(before)))
    return sqrt(sum(dot(part, part) for part in parts)) / max(size, 1e-12)
