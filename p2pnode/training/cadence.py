"""How often work may interrupt training: saving and evaluation each get a small share of the time."""

from __future__ import annotations

from ..wire.types import Seconds

SHARE = 0.02  # of the time, for each of the things that training has to wait for


class Cadence:
    """How often something may happen that takes time from training: every so often, and for SHARE of the time."""

    def __init__(self, now: Seconds, first: Seconds) -> None:
        self._next = now + first

    def due(self, now: Seconds) -> bool:
        return now >= self._next

    def done(self, begun: Seconds, now: Seconds, least: Seconds) -> None:
        """It happened between `begun` and `now`; not again for `least` seconds."""
        self._next = now + max(least, (now - begun) / SHARE)
