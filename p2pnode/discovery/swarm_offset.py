"""Swarm time: the local clock plus an offset agreed with peers, so that a clock a day wrong still joins.

A node that knows nobody yet takes over the median of the first peers' swarm time. Later it follows the median of its
own and its peers' time, so that a few liars cannot move it and two strangers converge.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

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
