"""What came of a simulation: final views, samples over time, counts, and the digest of all that happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..network.sim.swarm import SimHost
from ..watch.graph import PeerGraph
from ..watch.view import SwarmView
from ..wire.errors import P2pnodeError
from ..wire.status import NodeStatus
from ..wire.types import Seconds

if TYPE_CHECKING:
    from ..jobs.train.job import TrainJob

MB = 1e6


class RoundRow(NamedTuple):
    """A node after a round. Losses and accuracy are those of the read-out, as the node last evaluated it."""

    time: Seconds
    node: str
    round: int
    steps: int
    loss: float | None  # of the round's local steps
    test_loss: float | None
    accuracy: float | None
    mb_received: float
    mb_sent: float


@dataclass(frozen=True)
class NodeSummary:
    """A node at the end; `accuracy` and `test_loss` are those of its read-out then, on the task's test data."""

    node: str
    circle: str
    rounds: int
    steps: int
    samples: int
    speed: float  # local steps a second
    test_loss: float
    accuracy: float | None
    alone: float | None  # accuracy after as many steps on the same samples without anybody; None: not tried
    mb_received: float
    mb_sent: float
    starts: int
    shards: int = 0  # that travel and are there at the end
    copied: int = 0  # passed on and kept
    moved: int = 0  # passed on for want of room
    mb_data: float = 0.0  # received as samples, to be kept too


class CurveCollector:
    """Collects rows."""

    def __init__(self) -> None:
        self.rows: list[RoundRow] = []
        self._seen: dict[str, int] = {}

    def look(self, now: Seconds, name: str, learning: TrainJob, host: SimHost) -> RoundRow | None:
        """The node's newest round, when it is new."""
        status = learning.status()
        if status.rounds == self._seen.get(name, 0):
            return None
        self._seen[name] = status.rounds
        row = RoundRow(
            time=now,
            node=name,
            round=status.rounds,
            steps=status.steps,
            loss=status.loss,
            test_loss=status.test_loss,
            accuracy=status.accuracy,
            mb_received=host.received_bytes / MB,
            mb_sent=host.sent_bytes / MB,
        )
        self.rows.append(row)
        return row


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
    statuses: tuple[NodeStatus | None, ...]
    samples: tuple[Sample, ...]
    messages: Mapping[str, int]
    ended: Mapping[int, P2pnodeError]
    left_over: tuple[str, ...]  # tasks, operations and complaints that should not be there when all have left
    curves: tuple[RoundRow, ...] = ()  # what was learned, a row for each round of each node
    summaries: tuple[NodeSummary, ...] = ()  # and what came of it
    finished: bool = True  # False: the time ran out before all had done their rounds
    real_seconds: float = 0.0
    pictures: tuple[PeerGraph, ...] = ()  # the peer graph over time, where something was learned

    def rows(self) -> list[dict[str, float | str | int | None]]:
        """The curves, or the samples where nothing was learned: a table for a notebook, as in DataFrame(rows())."""
        return [row._asdict() for row in self.curves or self.samples]

    def view(self) -> SwarmView:
        """The swarm to look at: peers, graphs and figures of any moment (watch.view)."""
        return SwarmView(lambda: self.pictures)

    def accuracies(self) -> list[float]:
        """Of every node at the end, where the task has any."""
        return [one.accuracy for one in self.summaries if one.accuracy is not None]

    def circles(self) -> dict[str, int]:
        """How many nodes each circle has at the end."""
        return dict(Counter(one.circle for one in self.summaries))

    def compared(self) -> list[tuple[float, float]]:
        """(alone, together) of the nodes that were trained alone too."""
        return [(one.alone, one.accuracy) for one in self.summaries if None not in (one.alone, one.accuracy)]  # type: ignore[misc]

    def facts(self) -> dict[str, object]:
        """The figures of the whole."""
        right = self.accuracies()
        alone, together = [a for a, _ in self.compared()], [b for _, b in self.compared()]
        return {
            "digest": self.digest,
            "finished": self.finished,
            "virtual_seconds": self.seconds,
            "real_seconds": self.real_seconds,
            "accuracy": _mean(right),
            "accuracy_worst": min(right, default=None),
            "circles": sorted(self.circles().values()),
            "alone": _mean(alone),
            "same_nodes_together": _mean(together),
            "mb_received_per_node": _mean([one.mb_received for one in self.summaries]),
            "mb_sent_per_node": _mean([one.mb_sent for one in self.summaries]),
            "mb_data_per_node": _mean([one.mb_data for one in self.summaries]),
            "shards_copied": sum(one.copied for one in self.summaries),
            "shards_moved": sum(one.moved for one in self.summaries),
            "ended": {str(index): str(error) for index, error in sorted(self.ended.items())},
        }

    def sees(self, index: int) -> frozenset[str]:
        """The ids of the peers that this node counts as present at the end."""
        status = self.statuses[index]
        return frozenset(row.id for row in status.peers if row.present) if status is not None else frozenset()

    def blind_spots(self) -> list[tuple[int, int]]:
        """Pairs of running nodes (a, b) where a does not see b; none when everybody sees everybody."""
        ids = [(index, status.id) for index, status in enumerate(self.statuses) if status is not None]
        seen = {index: self.sees(index) for index, _ in ids}
        return [(a, b) for a, _ in ids for b, id in ids if a != b and id not in seen[a]]


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
