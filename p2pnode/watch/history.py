"""What was seen, within a bound: the newest moments all, older ones ever more thinly, so that time can be scrubbed."""

from __future__ import annotations

import msgspec

from .graph import PeerGraph

MOST = 600  # pictures
MOST_ROWS = 120_000  # peers and exchanges in all pictures together: about 30 MB


class PictureHistory:
    """Pictures in the order of their times, bounded in number and in what they show together.

    When it is full, every other one of the older half goes: a long run keeps its whole length, its past in less detail.
    """

    def __init__(self, most: int = MOST, most_rows: int = MOST_ROWS) -> None:
        if most < 4:
            raise ValueError(f"a history of {most} pictures")
        self._most, self._most_rows = most, most_rows
        self._kept: list[PeerGraph] = []
        self._rows = 0

    def add(self, graph: PeerGraph) -> None:
        """A picture not newer than the newest is left out: a clock that was set back must not stir the order."""
        if self._kept and graph.time <= self._kept[-1].time:
            return
        self._kept.append(msgspec.structs.replace(graph, events=(), invite=""))
        self._rows += _rows(graph)
        while len(self._kept) > 4 and (len(self._kept) > self._most or self._rows > self._most_rows):
            half = len(self._kept) // 2
            self._kept = self._kept[:half:2] + self._kept[half:]
            self._rows = sum(map(_rows, self._kept))

    def all(self) -> tuple[PeerGraph, ...]:
        """Oldest first."""
        return tuple(self._kept)


def _rows(graph: PeerGraph) -> int:
    return len(graph.peers) + len(graph.exchanges)
