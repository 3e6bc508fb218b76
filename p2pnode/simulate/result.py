"""What came of a simulation: final views, samples over time, counts, and the digest of all that happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import P2pnodeError
from ..network.base import Seconds
from ..node.status import Status


class Sample(NamedTuple):
    """What one node saw at one time."""

    time: Seconds
    node: str
    condition: str
    sees: int


@dataclass(frozen=True)
class SimResult:
    """What came of it. `statuses` are final, None for a node that was down; `ended` has those that gave up, and why."""

    digest: str
    seconds: Seconds
    statuses: tuple[Status | None, ...]
    samples: tuple[Sample, ...]
    messages: Mapping[str, int]
    message_bytes: Mapping[str, int]
    ended: Mapping[int, P2pnodeError]
    left_over: tuple[str, ...]  # tasks, operations and complaints that should not be there when all have left

    def rows(self) -> list[dict[str, float | str | int]]:
        """The samples, as a table for a notebook."""
        return [sample._asdict() for sample in self.samples]

    def sees(self, index: int) -> frozenset[str]:
        """The ids of the peers that this node counts as present at the end."""
        status = self.statuses[index]
        return frozenset(row.id for row in status.peers if row.present) if status is not None else frozenset()

    def blind_spots(self) -> list[tuple[int, int]]:
        """Pairs of running nodes (a, b) where a does not see b; none when everybody sees everybody."""
        ids = [(index, status.id) for index, status in enumerate(self.statuses) if status is not None]
        seen = {index: self.sees(index) for index, _ in ids}
        return [(a, b) for a, _ in ids for b, id in ids if a != b and id not in seen[a]]
