"""Whether a delta set is where it should be: as far as its partners, and with the weights that its entries make. Pure.

Equal digests mean equal weights. Partners at equal digests compare a checksum of A, and now and then a node compares
its own with what the array in memory gives. What is wrong is mended by a snapshot.
"""

from __future__ import annotations

from ...wire.ids import PeerId
from .checksum import Checksum
from .heads import Heads, merge, missing

OUTVOTED = 2  # partners that differ from us, with none between that agrees: then it is we who are wrong
BEHIND_TIMES = 3  # that partners say they no longer have the entries we lack, before a snapshot is due


class Agreement:
    """What comparing weights has shown since the node started."""

    def __init__(self) -> None:
        self.checks = 0
        self.mismatches = 0
        self.differs: set[PeerId] = set()  # partners whose weights differ, since one last agreed
        self.doubted = False  # a difference that we have not looked into
        self.damaged = False  # our own are wrong; nobody should be given them

    def compare(self, partner: PeerId, mine: Checksum, theirs: Checksum) -> None:
        """A partner at the same digest says its checksum."""
        self.checks += 1
        if mine == theirs:
            self.differs.clear()
            return
        self.mismatches += 1
        self.doubted = True
        self.differs.add(partner)

    def look(self, expected: Checksum, found: Checksum) -> None:
        """What our own array gives, where `expected` is what its entries make."""
        self.doubted = False
        self.damaged |= found != expected or len(self.differs) >= OUTVOTED

    def mended(self) -> None:
        self.damaged = False
        self.differs.clear()


class Behind:
    """Whether the entries this node lacks can still be had, or only their sum."""

    def __init__(self) -> None:
        self._lacked: Heads = {}
        self._times = 0

    @property
    def due(self) -> bool:
        """A snapshot is."""
        return self._times >= BEHIND_TIMES

    def note(self, told: bool, theirs: Heads, mine: Heads) -> None:
        """A partner at heads `theirs` was asked, and `told` us that it lacks entries we need."""
        if not missing(mine, self._lacked):
            self.caught_up()
        if told and missing(mine, theirs):
            self._lacked = merge(self._lacked, theirs)
            self._times += 1

    def caught_up(self) -> None:
        self._lacked, self._times = {}, 0
