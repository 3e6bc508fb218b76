"""How far a node's training has got: counts and latest values for the views, progress events and `--until`."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from ..config.until import THRESHOLD, Until
from ..merging.policy import MergeResult
from ..tasks.task import Evaluation
from ..wire.bounded import put_bounded
from ..wire.ids import PeerId
from ..wire.status import ExchangeRow, Figure, MergeRow
from ..wire.types import Seconds

MAX_PARTNERS = 256
MAX_MERGES = 500
NOBODY = PeerId("")
REPORT_EVERY: Seconds = 30.0  # at most one progress line in this time
CALM_ROUNDS = 10  # for which the update norm must stay below the threshold: then a run has converged
SMOOTHING = 0.9  # of the update norm, per round


@dataclass(frozen=True)
class Reached:
    """How far a node has come, to be compared with `--until`."""

    rounds: int
    seconds: float  # of training since this start
    accuracy: float | None
    update_norm: float | None  # smoothed
    calm_rounds: int  # for which the smoothed norm has been under the threshold
    steps: int = 0  # that members of the run have done, on average


def reached(until: Until, now: Reached) -> str:
    """The reason to stop, or "" while the goal is not reached."""
    match until.what:
        case "steps" if now.steps >= until.amount:
            return f"{now.steps:,} steps of the run are done"
        case "rounds" if now.rounds >= until.amount:
            return f"{now.rounds} rounds are done"
        case "time" if now.seconds >= until.amount:
            return f"{now.seconds:.0f} s have passed"
        case "accuracy" if now.accuracy is not None and now.accuracy >= until.amount:
            return f"an accuracy of {now.accuracy:.1%} is reached"
        case "converged" if now.calm_rounds >= CALM_ROUNDS and now.update_norm is not None:
            return f"the run has converged: updates change the weights by {now.update_norm:.2%} only"
        case _:
            return ""


class Monitor:
    """The convergence monitor: smooths the relative norm of updates, and counts for how many rounds it was small."""

    def __init__(self, threshold: float = THRESHOLD) -> None:
        self._threshold = threshold
        self.norm: float | None = None
        self.calm_rounds = 0

    def note(self, update_norm: float) -> None:
        """Take in one round's update."""
        self.norm = update_norm if self.norm is None else SMOOTHING * self.norm + (1 - SMOOTHING) * update_norm
        self.calm_rounds = self.calm_rounds + 1 if self.norm < self._threshold else 0


@dataclass
class TrainProgress:
    """Counts since the node joined the run. `monitor` follows how much the shared weights still change."""

    monitor: Monitor = field(default_factory=Monitor)
    me: PeerId = NOBODY
    rounds: int = 0
    loss: float | None = None
    evaluation: Evaluation | None = None
    sample: str = ""  # the latest text of a language model
    update_norm: float = 0.0
    merged: str = ""
    exchanges: int = 0
    entries: int = 0
    bridges: int = 0  # own entries that bridge to other circles
    problems: int = 0
    diverged: int = 0  # rounds in a row whose numbers were not finite
    begun: Seconds = 0.0
    reported: Seconds | None = None
    partners: dict[PeerId, ExchangeRow] = field(default_factory=dict)  # the latest last
    merges: deque[MergeRow] = field(default_factory=lambda: deque(maxlen=MAX_MERGES))
    _between: int = 0  # entries that were merged since the last round
    _unmerged: list[tuple[PeerId, int, int]] = field(default_factory=list)  # exchanges since the last merge

    def note_exchange(self, partner: PeerId, sent_bytes: int, received_bytes: int, now: float) -> None:
        """Count a successful exchange. Only the MAX_PARTNERS latest partners are remembered one by one."""
        self.exchanges += 1
        self._unmerged = [*self._unmerged[-MAX_PARTNERS:], (partner, sent_bytes, received_bytes)]
        before = self.partners.get(partner, ExchangeRow(self.me, partner, now, 0, 0, 0))
        sent, received = before.sent_bytes + sent_bytes, before.received_bytes + received_bytes
        count, change = before.count + 1, before.loss_change
        row = ExchangeRow(self.me, partner, now, count, sent, received, change)
        put_bounded(self.partners, partner, row, MAX_PARTNERS)

    def note_between(self, merged: MergeResult) -> None:
        """Count a merge between two rounds; what it brought is shown with the next round."""
        self._between += merged.entries

    def note(self, loss: float, merged: MergeResult, now: float, steps: int = 0) -> None:
        """Count a finished round. Its loss shows the effect of the merge before it and of its partners."""
        if self.merges:
            self._note_change(self.merges[-1].partners, loss - self.merges[-1].loss)
        partners = tuple(dict.fromkeys(partner for partner, _, _ in self._unmerged))
        sent, received = sum(row[1] for row in self._unmerged), sum(row[2] for row in self._unmerged)
        entries, self._between = merged.entries + self._between, 0
        change = (entries, loss, merged.update_norm, steps, merged.values)
        row = MergeRow(self.rounds + 1, now, partners, sent, received, *change)
        self.merges.append(row)
        self._unmerged = []
        self.rounds += 1
        self.diverged = 0
        self.loss = loss
        self.update_norm = merged.update_norm
        self.merged = merged.summary
        self.entries += entries
        self.monitor.note(merged.update_norm)

    def _note_change(self, partners: tuple[str, ...], change: float) -> None:
        for partner in map(PeerId, partners):
            if partner in self.partners:
                self.partners[partner] = msgspec.structs.replace(self.partners[partner], loss_change=change)

    def reached(self, now: Seconds, steps: int) -> Reached:
        """What `--until` is compared with; `steps` are those of the run."""
        monitor, evaluation = self.monitor, self.evaluation
        accuracy = None if evaluation is None else evaluation.accuracy
        return Reached(self.rounds, now - self.begun, accuracy, monitor.norm, monitor.calm_rounds, steps)

    def line(self, now: Seconds, test_samples: int, figures: Sequence[Figure] = ()) -> str:
        """The progress in words; "" when it was reported lately or nothing is known yet.

        When the model was evaluated on fewer than all `test_samples`, it says on how many. `figures` are the task's.
        """
        if self.evaluation is None or (self.reported is not None and now - self.reported < REPORT_EVERY):
            return ""
        self.reported = now
        loss = "" if self.loss is None else f"training loss {self.loss:.4g}, "
        accuracy = self.evaluation.accuracy
        test = f"test accuracy {accuracy:.1%}" if accuracy is not None else f"test loss {self.evaluation.loss:.4g}"
        few = self.evaluation.samples < test_samples
        of_few = f" of {self.evaluation.samples} of {test_samples} test samples" if few else ""
        own = "".join(f" ({figure.value:.4g} {figure.label})" for figure in figures)
        entries = f"{self.entries} {'entry' if self.entries == 1 else 'entries'} of others"
        return f"round {self.rounds}: {loss}{test}{own}{of_few}, {entries}"
