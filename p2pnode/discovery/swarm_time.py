"""Swarm time: the local clock plus an offset agreed with peers, so that a node whose clock is a day off can join."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from ..network.base import Clock
from ..wire.bounded import put_bounded
from ..wire.ids import PeerId

TOLERANCE = 2.0  # seconds; a smaller disagreement is not corrected
FAR_OFF = 60.0  # seconds; from this offset on the user is warned
ENOUGH_REPORTS = 3  # reports needed before an established node corrects itself


def corrected_offset(offset: float, reports: Sequence[float], established: bool) -> float:
    """Return the new offset. `reports` has one value per peer: its swarm time minus the local clock."""
    if not reports:
        return offset
    if not established:
        return _unless_close(offset, median(reports))
    if len(reports) < ENOUGH_REPORTS and abs(median(reports) - offset) < FAR_OFF:
        return offset
    return _unless_close(offset, median([*reports, offset]))


def _unless_close(offset: float, proposed: float) -> float:
    return proposed if abs(proposed - offset) > TOLERANCE else offset


MAX_REPORTS = 15
UNKNOWN = 0.0
END_OF_TIME = 1e11  # the year 5138; also shuts out infinity and NaN


class SwarmClock:
    """Local clock plus offset. `established` once the offset came from a peer, or is ours to define (a founder's)."""

    def __init__(self, clock: Clock, on_jump: Callable[[float], None]) -> None:
        self.offset = 0.0
        self.established = False
        self._clock = clock
        self._reports: dict[PeerId, float] = {}
        self._on_jump = on_jump

    def now(self) -> float:
        return self._clock.time() + self.offset

    def announced(self) -> float:
        """Return the time to tell peers: swarm time, or UNKNOWN while we only have this machine's clock."""
        return self.now() if self.established else UNKNOWN

    def report(self, peer: PeerId, their_time: float, round_trip: float) -> None:
        """Take in a peer's swarm time, read about half a round trip ago. Values that cannot be a time are ignored."""
        if not UNKNOWN < their_time < END_OF_TIME:
            return
        put_bounded(self._reports, peer, their_time + round_trip / 2 - self._clock.time(), MAX_REPORTS)
        offset = corrected_offset(self.offset, list(self._reports.values()), self.established)
        jumped = abs(offset - self.offset) > FAR_OFF
        self.offset = offset
        self.established = True
        if jumped:
            self._on_jump(offset)
