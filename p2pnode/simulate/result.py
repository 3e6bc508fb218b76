"""The result of a simulation: final states, curves, counts, and a digest of everything that happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from ..network.sim.swarm import SimHost
from ..watch.graph import PeerGraph
from ..watch.view import SwarmView
from ..wire.errors import P2pnodeError
from ..wire.status import MAIN_JOB, JobStatus, NodeStatus
from ..wire.types import Seconds

MB = 1e6


class RoundRow(NamedTuple):
    """A node's status in a job after a round. `test_loss` and accuracy are those of its latest evaluation."""

    time: Seconds
    node: str
    job: str
    status: JobStatus
    mb_received: float
    mb_sent: float

    def flat(self) -> dict[str, float | str | int | None]:
        """The row of a table."""
        state = self.status.state.training
        return {
            "time": self.time,
            "node": self.node,
            "round": state.round,
            "steps": self.status.steps,
            "loss": state.loss,
            "test_loss": self.status.training.test_loss,
            "accuracy": state.accuracy,
            "mb_received": self.mb_received,
            "mb_sent": self.mb_sent,
        }


class NodeSummary(Struct, frozen=True):
    """A node at the end. `status` has the accuracy and test loss of its read-out then, on the task's test data."""

    node: str
    status: JobStatus
    alone: float | None  # accuracy after as many steps on the same samples without anybody; None: not tried
    mb_received: float
    mb_sent: float
    starts: int
    job: str = MAIN_JOB


class CurveCollector:
    """Collects a row for each round of each node."""

    def __init__(self) -> None:
        self.rows: list[RoundRow] = []
        self._seen: dict[tuple[str, str], int] = {}

    def look(self, now: Seconds, node: str, job: str, status: JobStatus, host: SimHost) -> RoundRow | None:
        """Add the node's latest round; returns its row where the round is new."""
        done = status.state.training.round or 0
        if done == self._seen.get((node, job), 0):
            return None
        self._seen[node, job] = done
        row = RoundRow(now, node, job, status, host.received_bytes / MB, host.sent_bytes / MB)
        self.rows.append(row)
        return row


class Sample(NamedTuple):
    """How many peers one node saw at one time."""

    time: Seconds
    node: str
    condition: str
    sees: int


@dataclass(frozen=True)
class SimResult:
    """The result. `statuses` are final, None for a node that was down; `ended` has the errors of nodes that gave up."""

    digest: str
    seconds: Seconds
    statuses: tuple[NodeStatus | None, ...]
    samples: tuple[Sample, ...]
    messages: Mapping[str, int]
    ended: Mapping[int, P2pnodeError]
    left_over: tuple[str, ...]  # tasks, operations and complaints that should not be there when all have left
    curves: tuple[RoundRow, ...] = ()  # a row for each round of each node
    summaries: tuple[NodeSummary, ...] = ()  # the nodes at the end
    finished: bool = True  # False: the time ran out before all nodes had done their rounds
    real_seconds: float = 0.0
    pictures: tuple[PeerGraph, ...] = ()  # the peer graph over time, where something was trained

    def rows(self) -> list[dict[str, float | str | int | None]]:
        """The curves, or the samples where nothing was trained: a table for a notebook, as in DataFrame(rows()).

        Where a run has several jobs there is a column `job`.
        """
        if not self.curves:
            return [row._asdict() for row in self.samples]
        several = len({row.job for row in self.curves}) > 1
        return [{**row.flat(), **({"job": row.job} if several else {})} for row in self.curves]

    def view(self) -> SwarmView:
        """The swarm to look at: peers, graphs and figures of any moment (watch.view)."""
        return SwarmView(lambda: self.pictures)

    def accuracies(self, job: str = "") -> list[float]:
        """The accuracy of every node at the end, where the task has one; of one job where it is named."""
        found = [one.status.state.training.accuracy for one in self.summaries if job in ("", one.job)]
        return [accuracy for accuracy in found if accuracy is not None]

    def circles(self) -> dict[str, int]:
        """How many nodes each circle has at the end."""
        return dict(Counter(one.status.state.circle for one in self.summaries))

    def compared(self) -> list[tuple[float, float]]:
        """(alone, together) of the nodes that were trained alone too."""
        pairs = [(one.alone, one.status.state.training.accuracy) for one in self.summaries]
        return [(alone, together) for alone, together in pairs if alone is not None and together is not None]

    def facts(self) -> dict[str, object]:
        """The figures of the whole simulation."""
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
            "mb_data_per_node": _mean([one.status.training.data_received_bytes / MB for one in self.summaries]),
            "shards_copied": sum(one.status.training.copied for one in self.summaries),
            "shards_moved": sum(one.status.training.moved for one in self.summaries),
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
