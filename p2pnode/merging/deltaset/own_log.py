"""Whether this node may go on with the log that it finds on its disk after a start. Pure.

A data directory may have been set back in time: a restored backup, the snapshot of a virtual machine. Partners then
know entries of ours that the disk does not, and the next number we sign would contradict them, which nobody can tell
from fraud. So a node goes on with a log of its disk only once partners have said, after the start, what they know of
it, and nobody knows more than the disk; what it lacks it takes from them first. If they do not answer, it begins a new
log.
"""

from __future__ import annotations

from ...wire.ids import PeerId
from .entry import Chain
from .heads import Heads

CONFIRMATIONS = 3  # partners that have to answer, or all of fewer members


class OwnLog:
    """What partners have reported about this node's log since the start."""

    def __init__(self) -> None:
        self._confirmed = True
        self._heard: dict[PeerId, int] = {}  # the latest of our entries that each partner knows

    def resumed(self, chain: Chain, heads: Heads) -> None:
        """The log comes from the disk, and others may know more of it if there are any."""
        self._confirmed = all(other.peer == chain.peer for other in heads)
        self._heard.clear()

    def begun_anew(self) -> None:
        """The log is a new one, which nobody can know."""
        self._confirmed = True
        self._heard.clear()

    def heard(self, partner: PeerId, chain: Chain, theirs: Heads) -> None:
        """Notes a partner's report of what it knows."""
        if not self._confirmed:
            self._heard[partner] = theirs.get(chain, 0)

    def confirmed(self, head: int, peers: int) -> bool:
        """Whether the log may go on after entry `head`, in a circle of so many active members, this node included."""
        if not self._confirmed:
            needed = min(CONFIRMATIONS, max(1, peers - 1))
            self._confirmed = len(self._heard) >= needed and head >= max(self._heard.values())
        return self._confirmed
