"""What training has reached: for the views, for events, and for `--until`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from ..config.until import Monitor, Reached
from ..merging.policy import MergeResult
from ..tasks.task import Evaluation
from ..wire.bounded import keep_newest
from ..wire.ids import PeerId
from ..wire.status import ExchangeRow, MergeRow
from ..wire.types import Seconds

MAX_PARTNERS = 256
MAX_MERGES = 500
NOBODY = PeerId("")
SAY_EVERY: Seconds = 30.0  # between two lines about the progress, at least


@dataclass
class TrainProgress:
    """Counts since the node joined the run; `monitor` watches how much the shared weights still change."""

    monitor: Monitor = field(default_factory=Monitor)
    me: PeerId = NOBODY
    rounds: int = 0
    loss: float | None = None
    evaluation: Evaluation | None = None
    update_norm: float = 0.0
    merged: str = ""
    exchanges: int = 0
    entries: int = 0
    bridges: int = 0  # of this node, to other circles
    problems: int = 0
    diverged: int = 0  # rounds in a row
    begun: Seconds = 0.0
    said: Seconds | None = None
    partners: dict[PeerId, ExchangeRow] = field(default_factory=dict)  # the latest one last
    merges: deque[MergeRow] = field(default_factory=lambda: deque(maxlen=MAX_MERGES))
    _since: list[tuple[PeerId, int, int]] = field(default_factory=list)  # exchanges after the last merge

    def note_exchange(self, partner: PeerId, sent_bytes: int, received_bytes: int, now: float) -> None:
        """Counts a successful exchange. Only the latest MAX_PARTNERS partners have a row of their own."""
        self.exchanges += 1
        self._since = [*self._since[-MAX_PARTNERS:], (partner, sent_bytes, received_bytes)]
        before = self.partners.get(partner, ExchangeRow(self.me, partner, now, 0, 0, 0))
        sent, received = before.sent_bytes + sent_bytes, before.received_bytes + received_bytes
        count, change = before.count + 1, before.loss_change
        row = ExchangeRow(self.me, partner, now, count, sent, received, change)
        keep_newest(self.partners, partner, row, MAX_PARTNERS)

    def note(self, loss: float, merged: MergeResult, now: float, steps: int = 0) -> None:
        """Counts a finished round. Its loss shows the effect of the previous merge and of the partners in it."""
        if self.merges:
            self._note_change(self.merges[-1].partners, loss - self.merges[-1].loss)
        partners = tuple(dict.fromkeys(partner for partner, _, _ in self._since))
        sent, received = sum(row[1] for row in self._since), sum(row[2] for row in self._since)
        change = (merged.entries, loss, merged.update_norm, steps, merged.values)
        row = MergeRow(self.rounds + 1, now, partners, sent, received, *change)
        self.merges.append(row)
        self._since = []
        self.rounds += 1
        self.diverged = 0
        self.loss = loss
        self.update_norm = merged.update_norm
        self.merged = merged.why
        self.entries += merged.entries
        self.monitor.note(merged.update_norm)

    def _note_change(self, partners: tuple[str, ...], change: float) -> None:
        for partner in map(PeerId, partners):
            if partner in self.partners:
                self.partners[partner] = msgspec.structs.replace(self.partners[partner], loss_change=change)

    def reached(self, now: Seconds) -> Reached:
        monitor, evaluation = self.monitor, self.evaluation
        accuracy = None if evaluation is None else evaluation.accuracy
        return Reached(self.rounds, now - self.begun, accuracy, monitor.norm, monitor.calm_rounds)

    def line(self, now: Seconds) -> str:
        """One line about the progress; "" when there was one recently, or nothing is known yet."""
        if self.evaluation is None or (self.said is not None and now - self.said < SAY_EVERY):
            return ""
        self.said = now
        loss = "" if self.loss is None else f"loss {self.loss:.4g}, "
        accuracy = self.evaluation.accuracy
        test = f"accuracy {accuracy:.1%}" if accuracy is not None else f"test loss {self.evaluation.loss:.4g}"
        return f"round {self.rounds}: {loss}{test}, {self.entries} entries of others"
