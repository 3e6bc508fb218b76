"""Finds out whether a delta set is as far as its partners', and whether its weights are the sum of its entries. Pure.

Equal digests mean equal weights. Partners at equal digests compare a checksum of A, and now and then a node compares
the checksum of its entries with that of the array in memory. A snapshot repairs what is wrong.
"""

from __future__ import annotations

from ...wire.ids import PeerId
from .checksum import Checksum
from .heads import Heads, merge, missing

OUTVOTED = 2  # partners in a row that differ from us: then our own weights are wrong
DOUBT_PAUSE = 8  # questions
BEHIND_TIMES = 3  # answers that the entries we lack are no longer kept, before a snapshot is due


class Agreement:
    """What comparing weights has shown since the node started."""

    def __init__(self) -> None:
        self.checks = 0
        self.mismatches = 0
        self.differs: set[PeerId] = set()  # partners whose weights differ, since one last agreed
        self.doubted = False  # there was a difference, and our own weights are not checked yet
        self.damaged = False  # our own weights are wrong; nobody should get them

    def compare(self, partner: PeerId, mine: Checksum, theirs: Checksum) -> None:
        """Compare with the checksum of a partner at the same digest."""
        self.checks += 1
        if mine == theirs:
            self.differs.clear()
            return
        self.mismatches += 1
        self.doubted = True
        self.differs.add(partner)

    def look(self, expected: Checksum, found: Checksum) -> None:
        """Compare the checksum of the array in memory with that of its entries."""
        self.doubted = False
        self.damaged |= found != expected or len(self.differs) >= OUTVOTED

    def repaired(self) -> None:
        """A snapshot has replaced the weights."""
        self.damaged = False
        self.differs.clear()


class Doubts:
    """Whether to ask partners what authors signed, because entries did not count here although they do there.

    An author that gave different entries to different nodes makes them judge others' entries differently.
    """

    def __init__(self) -> None:
        self._uncounted = False
        self._pause = 0

    def note(self, uncounted: bool) -> None:
        """An entry came; `uncounted` says that it does not count here."""
        self._uncounted |= uncounted

    def asks(self) -> bool:
        """Whether the next question should say so. Not often: claims are large, and liars could ask for them too."""
        self._pause = max(0, self._pause - 1)
        if not self._uncounted or self._pause:
            return False
        self._uncounted, self._pause = False, DOUBT_PAUSE
        return True


class Behind:
    """Whether partners still have the entries this node lacks, or only their sum."""

    def __init__(self) -> None:
        self._lacked: Heads = {}
        self._times = 0

    @property
    def due(self) -> bool:
        """Whether a snapshot is due."""
        return self._times >= BEHIND_TIMES

    def note(self, no_longer_kept: bool, theirs: Heads, mine: Heads) -> None:
        """A partner at heads `theirs` answered, and says whether it no longer keeps entries that we lack."""
        if not missing(mine, self._lacked):
            self.caught_up()
        if no_longer_kept and missing(mine, theirs):
            self._lacked = merge(self._lacked, theirs)
            self._times += 1

    def caught_up(self) -> None:
        """Nothing is missing any more."""
        self._lacked, self._times = {}, 0
