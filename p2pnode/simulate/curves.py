"""What the nodes of a simulation learned: a row for each round of each node, and a summary of each node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..network.base import Seconds
from ..network.sim.swarm import SimHost

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
