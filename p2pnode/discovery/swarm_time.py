"""This node's idea of swarm time, corrected by what peers say (peers/swarmtime has the rule)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from ..network.base import Clock
from ..wire.bounded import keep_newest
from ..wire.ids import PeerId

TOLERANCE = 2.0  # seconds of disagreement not worth correcting
FAR_OFF = 60.0  # seconds of offset from which the user is warned
ENOUGH_REPORTS = 3  # reports that make an established node correct itself


def corrected_offset(offset: float, reports: Sequence[float], established: bool) -> float:
    """The new offset, given peers' swarm time minus the local clock (`reports`, one per peer)."""
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
    """Local clock plus offset. `established` once the offset is a swarm's: taken from a peer, or ours to define."""

    def __init__(self, clock: Clock, on_jump: Callable[[float], None]) -> None:
        self.offset = 0.0
        self.established = False
        self._clock = clock
        self._reports: dict[PeerId, float] = {}
        self._on_jump = on_jump

    def now(self) -> float:
        return self._clock.time() + self.offset

    def told(self) -> float:
        """What we tell others: swarm time, or UNKNOWN while all we have is this machine's clock."""
        return self.now() if self.established else UNKNOWN

    def report(self, peer: PeerId, their_time: float, round_trip: float) -> None:
        """A peer told its swarm time; half the round trip ago, by our best guess. What cannot be a time is ignored."""
        if not UNKNOWN < their_time < END_OF_TIME:
            return
        keep_newest(self._reports, peer, their_time + round_trip / 2 - self._clock.time(), MAX_REPORTS)
        offset = corrected_offset(self.offset, list(self._reports.values()), self.established)
        jumped = abs(offset - self.offset) > FAR_OFF
        self.offset = offset
        self.established = True
        if jumped:
            self._on_jump(offset)
