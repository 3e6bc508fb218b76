"""What a merge policy can do beyond the contract of policy.py.

Every policy carries one frozen `Capabilities` record. A capability that is None is one the policy does not have: the
node asks for the capability it needs and never for the policy's type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..compression.selector import Selector
from ..compression.weights import Floats, WeightLayout
from ..wire.ids import PeerId
from .deltaset.agreement import Agreement
from .deltaset.bridges import Bridges
from .deltaset.entry import EntryFacts
from .deltaset.set import DeltaSet
from .deltaset.vetoes import VetoCount
from .settling import Phase
from .snapshots.outline import Snapshot


class SharesEntries(Protocol):
    """Members share a log of entries, so that everybody gets everybody's work and equal logs mean equal weights."""

    @property
    def agreement(self) -> Agreement:
        """What comparing weights with partners has shown so far."""
        ...

    @property
    def needs_snapshot(self) -> bool:
        """Whether entries alone no longer bring this node up to date."""
        ...

    @property
    def snapshot_bytes(self) -> int:
        """The size of a snapshot's content: catching up by entries is worthwhile as long as they are smaller."""
        ...

    def heads(self) -> dict[PeerId, int]:
        """The number of the latest known entry of each author, in its latest incarnation."""
        ...

    def latest(self, author: PeerId) -> EntryFacts | None:
        """What an author reported of its latest round; None when nothing is known."""
        ...

    def digest(self) -> bytes:
        """Light. Equal at two nodes exactly when they know the same entries."""
        ...

    def same_as(self, answer: bytes) -> bool:
        """Light. Whether the partner that gave this answer knows the same entries as this node."""
        ...

    def weights_at(self, place: bytes = b"") -> tuple[bytes, Floats] | None:
        """Heavy. The shared weights now, or at a position of the log, and that position.

        None when it is not known here, ValueError when it is not a position of this model.
        """
        ...

    def arrive(self) -> None:
        """Heavy. Go on from a member's entries, taken in from the genesis on, as from a snapshot."""
        ...

    def begin_log(self, incarnation: int, lost_entries: bool) -> None:
        """Publish under a new log from now on: at least this incarnation, and the next one where entries were lost."""
        ...

    def log_confirmed(self, peers: int) -> bool:
        """Light. Whether partners know no more of this node's log than it does, in a circle of `peers` members.

        False for a while after a start: what is published then might contradict entries that the disk has lost.
        """
        ...

    def keep(self, begun: Floats, after: Floats) -> None:
        """Heavy. Keep a round's progress to be published later."""
        ...


class TracesAuthors(Protocol):
    """It is known whose work is in the weights, and an author's part can be left out again."""

    @property
    def left_out(self) -> frozenset[str]:
        """The authors that this node leaves out."""
        ...

    def authors(self) -> set[str]:
        """The authors of all known entries."""
        ...

    def shares(self, layout: WeightLayout) -> dict[str, dict[str, float]]:
        """Heavy. Each author's share of what the kept entries added to each layer."""
        ...

    def leave_out(self, author: str) -> int:
        """Heavy. Keep an author's entries out of what this node trains, evaluates and exports; returns how many.

        The shared log stays as it is.
        """
        ...

    def veto(self, author: str, active: bool, reason: str) -> VetoCount:
        """Heavy. Sign a veto against an author, or withdraw it. It spreads, and may exclude the author everywhere."""
        ...

    def vetoes(self) -> dict[str, VetoCount]:
        """Light. The vetoes against authors, this node's and others'."""
        ...


class FormsCircles(Protocol):
    """A circle shares one delta set; a node can split off, follow a split, and go on in another circle."""

    @property
    def set(self) -> DeltaSet:
        """The set of the current circle."""
        ...

    @property
    def bridges(self) -> Bridges:
        """Comparing weights with other circles."""
        ...

    def weights(self) -> Floats:
        """Light. The shared weights now."""
        ...

    def snapshot(self, at: bytes = b"") -> Snapshot | None:
        """Heavy. As in `Policy`."""
        ...

    def move(self, deltas: DeltaSet, weights: Floats, incarnation: int) -> None:
        """Light, between rounds. Go on in another circle: the residual comes along, a new log begins.

        `weights` are those of the set, which take a while to compute.
        """
        ...


class LetsInEntries(Protocol):
    """Entries that arrive during a round can be let in between its local steps."""

    @property
    def times_let_in(self) -> int:
        """How often that happened."""
        ...

    def correct(self, begun: Floats, now: Floats) -> bool:
        """Heavy, at a step boundary of a round that started at `begun`: let in what came since. Both change in place.

        They move by the same vector, so that `now − begun`, the progress of the round, stays what it is. Returns
        whether anything had come; ValueError, and nothing changed, when the weights are not finite numbers.
        """
        ...


class Settles(Protocol):
    """All members can let their learning rate fall together for a while, so that the shared weights settle."""

    def settle(self) -> Phase:
        """Light. Begin a settling phase, or return the one that goes on or is to come."""
        ...


@dataclass(frozen=True)
class Capabilities:
    """What one policy can do. The capabilities of one policy share its state and its lock."""

    entries: SharesEntries | None = None
    authors: TracesAuthors | None = None
    circles: FormsCircles | None = None
    corrections: LetsInEntries | None = None
    selector: Selector | None = None  # chooses what to send; training feeds it gradients where it wants them
    settling: Settles | None = None  # None also in a run with a planned length, whose rate falls at its end
