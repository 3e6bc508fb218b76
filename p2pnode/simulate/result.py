"""The result of a simulation: final states, curves, counts, and a digest of everything that happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from ..network.sim.swarm import SimHost
from ..watch.graph import PeerGraph
from ..watch.queues import table_rows
from ..watch.rows import TableRows, need
from ..watch.view import SwarmView
from ..wire.errors import P2pnodeError
from ..wire.status import MAIN_JOB, JobStatus, NodeStatus
from ..wire.types import Seconds
from .scenario import Scenario

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

MB = 1e6


class RoundRow(NamedTuple):
    """A node's status in a job after a round. Test loss and accuracy are those of its latest evaluation."""

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
            "training_loss": state.loss,
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


class Moment(NamedTuple):
    """The nodes of a simulation at one time: means over those known by then, and the worst accuracy.

    `mb_received` is for a node and never falls.
    """

    time: Seconds
    mb_received: float
    accuracy: float | None
    accuracy_worst: float | None
    test_loss: float | None


def course(curves: Sequence[RoundRow], points: int = 120) -> list[Moment]:
    """How a simulation went, at several moments, from the latest row of each node that has been evaluated."""
    rows = [
        row
        for row in curves
        if row.status.training.test_loss is not None or row.status.state.training.accuracy is not None
    ]
    rows.sort(key=lambda row: row.time)
    every = max(1, len(rows) // points)
    latest: dict[tuple[str, str], RoundRow] = {}
    found: list[Moment] = []
    for place, row in enumerate(rows, 1):
        latest[row.node, row.job] = row
        if place % every == 0 or place == len(rows):
            moment = _moment(row.time, list(latest.values()))
            least = found[-1].mb_received if found else 0.0  # a node that comes late pulls the mean down
            found.append(moment._replace(mb_received=max(least, moment.mb_received)))
    return found


def _moment(time: Seconds, rows: Sequence[RoundRow]) -> Moment:
    right = [row.status.state.training.accuracy for row in rows if row.status.state.training.accuracy is not None]
    losses = [row.status.training.test_loss for row in rows if row.status.training.test_loss is not None]
    received = _mean([row.mb_received for row in rows]) or 0.0
    return Moment(time, received, _mean(right), min(right, default=None), _mean(losses))


class PeerCount(NamedTuple):
    """How many peers one node saw at one time."""

    time: Seconds
    node: str
    condition: str
    peers: int


@dataclass(frozen=True, repr=False)
class SimResult:
    """What came of one simulation. `statuses` are final and None for a node that was down."""

    scenario: Scenario  # what was simulated
    digest: str  # of everything that happened; equal for equal scenarios
    virtual_seconds: Seconds
    statuses: tuple[NodeStatus | None, ...]
    peer_counts: tuple[PeerCount, ...]  # who saw how many peers when
    message_counts: Mapping[str, int]  # by kind
    errors: Mapping[int, P2pnodeError]  # why nodes gave up, by number of the node
    left_over: tuple[str, ...]  # tasks, operations and complaints that should not be there when all have left
    curves: tuple[RoundRow, ...] = ()  # a row for each round of each node
    nodes: tuple[NodeSummary, ...] = ()  # the nodes at the end, with accuracy and traffic
    finished: bool = True  # False: the time ran out before all nodes had done their rounds
    real_seconds: float = 0.0
    pictures: tuple[PeerGraph, ...] = ()  # the peer graph over time, where something was trained

    def __repr__(self) -> str:
        """What was simulated and what came of it, in one line."""
        figures = self.summary()
        results = [
            f"{words} {text(figures[name])}" for name, words, text in IN_ONE_LINE if figures[name] is not None
        ]  # fmt: skip
        outcome = ", ".join(results) or f"{self.virtual_seconds:.0f} virtual seconds"
        return f"<SimResult: {self.scenario.describe()}: {outcome}{'' if self.finished else '; not finished'}>"

    def rows(self, table: str = "") -> TableRows:
        """A row for each round of each node; where nothing was trained, for each time a node's peers were counted.

        Where a run has several jobs there is a column `job`. With the title of a table that jobs report, such as
        "queues": its rows at the end, as the first node has them.
        """
        if table:
            reported = [table_rows(status.jobs, table) for status in self.statuses if status is not None]
            return next((rows for rows in reported if rows), TableRows())
        if not self.curves:
            return TableRows(row._asdict() for row in self.peer_counts)
        several = len({row.job for row in self.curves}) > 1
        return TableRows({**row.flat(), **({"job": row.job} if several else {})} for row in self.curves)

    def frame(self, table: str = "") -> pandas.DataFrame:
        """The rows as a data frame. LocalProblem where pandas is not installed."""
        return self.rows(table).frame()

    def plot(self) -> Figure:
        """Accuracy of all nodes over time and over traffic. LocalProblem where matplotlib is not installed."""
        need("matplotlib")
        from .figures import plot_result

        return plot_result(self)

    def view(self) -> SwarmView:
        """The swarm to look at: peers, graphs and figures of any moment (watch.view)."""
        return SwarmView(lambda: self.pictures)

    def accuracies(self, job: str = "") -> list[float]:
        """The accuracy of every node at the end, where the task has one; of one job where it is named."""
        found = [one.status.state.training.accuracy for one in self.nodes if job in ("", one.job)]
        return [accuracy for accuracy in found if accuracy is not None]

    def circles(self) -> dict[str, int]:
        """How many nodes each circle has at the end."""
        return dict(Counter(one.status.state.circle for one in self.nodes))

    def alone_and_together(self) -> list[tuple[float, float]]:
        """The two accuracies of each node that was trained alone too: alone, and with the others."""
        pairs = [(one.alone, one.status.state.training.accuracy) for one in self.nodes]
        return [(alone, together) for alone, together in pairs if alone is not None and together is not None]

    def summary(self) -> dict[str, Any]:
        """The figures of the whole simulation: means over the nodes at the end, unless the name says otherwise."""
        right, pairs = self.accuracies(), self.alone_and_together()
        losses = [one.status.training.test_loss for one in self.nodes if one.status.training.test_loss is not None]
        return {
            "digest": self.digest,
            "finished": self.finished,
            "virtual_seconds": self.virtual_seconds,
            "real_seconds": self.real_seconds,
            "accuracy": _mean(right),
            "accuracy_worst": min(right, default=None),
            "test_loss": _mean(losses),
            "test_loss_worst": max(losses, default=None),
            "circles": sorted(self.circles().values()),
            "accuracy_alone": _mean([alone for alone, _ in pairs]),  # of the nodes that were trained alone too,
            "accuracy_same_nodes": _mean([together for _, together in pairs]),  # and of the same nodes together
            "mb_received_per_node": _mean([one.mb_received for one in self.nodes]),
            "mb_sent_per_node": _mean([one.mb_sent for one in self.nodes]),
            "mb_data_per_node": _mean([one.status.training.data_received_bytes / MB for one in self.nodes]),
            "shards_copied": sum(one.status.training.copied for one in self.nodes),
            "shards_moved": sum(one.status.training.moved for one in self.nodes),
            "errors": {str(index): str(error) for index, error in sorted(self.errors.items())},
        }


IN_ONE_LINE: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("accuracy", "accuracy", "{:.1%}".format),
    ("accuracy_worst", "worst", "{:.1%}".format),
    ("test_loss", "test loss", "{:.3g}".format),
    ("mb_received_per_node", "MB received per node", "{:.2f}".format),
)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
