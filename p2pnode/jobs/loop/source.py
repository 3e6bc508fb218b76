"""What a training loop gives its node, and what the node tells the loop: the one object both threads know."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...compression.weights import WeightLayout
from ...tasks.task import Evaluation
from .handover import Handover
from .plan import TensorRows
from .replica import Evaluate, Probe, Replica
from .shared_data import SharedData
from .weights import Buffers


class LossMeter:
    """The mean of the losses that a loop reports, round by round. May be used by two threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sum, self._count = 0.0, 0

    def note(self, loss: float) -> None:
        with self._lock:
            self._sum += loss
            self._count += 1

    def take(self) -> float | None:
        """The mean since the last time; None where nothing finite was reported."""
        with self._lock:
            total, count, self._sum, self._count = self._sum, self._count, 0.0, 0
        mean = total / count if count else None
        return mean if mean is not None and abs(mean) < float("inf") else None


@dataclass
class LoopSource:
    """One training loop, as its node knows it."""

    handover: Handover
    layout: WeightLayout
    rows: TensorRows  # name, type and shape of each shared tensor
    task: str
    version: str
    buffers: Buffers
    state_dict: Callable[[Any], dict[str, Any]]  # heavy: weights → the whole model's state dict on the CPU
    config: Callable[[], dict[str, bytes]]  # files that belong into the folder of an exported model, by name
    file_name: str = "model.safetensors"  # that `from_pretrained` looks for
    replica: Replica | None = None
    evaluate: Evaluate | None = None
    probe: Probe | None = None
    share: SharedData | None = None  # whose shards may travel
    losses: LossMeter = field(default_factory=LossMeter)
    arrived: threading.Event = field(default_factory=threading.Event)  # the loop has the run's weights
    lineage: tuple[int, int] = (0, 0)  # steps of the lineage when the loop had made so many itself
    evaluation: Evaluation | None = None  # of the shared model, by the user's evaluate function
    closing: threading.Event = field(default_factory=threading.Event)  # the loop has ended: share the rest and leave
    problem: BaseException | None = None  # what ended the node, if that was no farewell

    def node_ended(self, problem: BaseException | None) -> None:
        """The node is gone; the loop hears of the problem at its next step. In the node's thread."""
        self.problem = problem

    @property
    def steps(self) -> int:
        """Steps of the lineage: what schedules follow. A loop that has just joined goes on where the run is."""
        at, total = self.lineage
        return at + max(0, self.handover.total - total)
