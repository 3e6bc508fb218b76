"""Loss and accuracy over the rounds a view has seen: its own node's, or the mean of the peers an observer watches."""

from __future__ import annotations

from collections import deque
from statistics import fmean

from ...wire.status import NodeStatus
from ..text import sparkline

KEPT = 200


class TerminalCurves:
    """Fed with one status after the other."""

    def __init__(self) -> None:
        self._losses: deque[float] = deque(maxlen=KEPT)
        self._accuracies: deque[float] = deque(maxlen=KEPT)
        self._round: int | None = None

    def note(self, status: NodeStatus) -> None:
        """Take down what is new: once a round, however often it is looked at."""
        round_, loss, accuracy = _now(status)
        if round_ is not None and round_ != self._round:
            self._round = round_
            self._losses += [] if loss is None else [loss]
            self._accuracies += [] if accuracy is None else [accuracy]

    def words(self, width: int) -> str:
        """Both as bars in about `width` columns; "" before there is anything to draw."""
        drawn = [
            f"{name} {bars} {latest}"
            for name, values, form in (("loss", self._losses, ".3g"), ("accuracy", self._accuracies, ".1%"))
            if (bars := sparkline(list(values), max(8, width // 3))) and (latest := f"{values[-1]:{form}}")
        ]
        return "   ".join(drawn)


def _now(status: NodeStatus) -> tuple[int | None, float | None, float | None]:
    """Round, loss and accuracy of the node; of one that learns nothing, what its peers say on average."""
    if status.learning is not None:
        return status.learning.rounds, status.learning.loss, status.learning.accuracy
    there = [row for row in status.peers if row.present]
    rounds = [row.round for row in there if row.round is not None]
    losses = [row.loss for row in there if row.loss is not None]
    accuracies = [row.accuracy for row in there if row.accuracy is not None]
    mean = (fmean(losses) if losses else None), (fmean(accuracies) if accuracies else None)
    return (sum(rounds) if rounds else None), *mean
