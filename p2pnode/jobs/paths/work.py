"""One path that this node trains: its blocks, its samples, its optimizer, and how good it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compression.weights import Floats
from ...storage.checkpoints import CheckpointStore
from ...tasks.task import Evaluation
from ...training.trainer import Trainer
from ...wire.errors import LocalProblem
from ...wire.types import Seconds
from ..blocks.joined import JoinedBlocks
from ..contract import JobContext, own_seed
from ..train.steps import RoundSteps
from .setup import PathsSetup

Rows = NDArray[np.int64]
FEW = 64  # test samples of a path that are evaluated, at most, while it is trained


class PathWork:
    """Trains one path. Its blocks are saved by themselves; the rest is saved here."""

    def __init__(
        self,
        context: JobContext,
        setup: PathsSetup,
        path: int,
        joined: JoinedBlocks,
        rows: Rows,
        longest_piece: Callable[[], Seconds | None],
    ) -> None:
        services = context.services
        self.path = path
        self.joined = joined
        self.rounds = 0
        self.rate = 1.0  # factor on the learning rate, lower after rounds that diverged
        self.loss: float | None = None
        self.tested: Evaluation | None = None  # on test samples whose whole document belongs to the path
        self.tested_by_beginning: Evaluation | None = None  # on those whose beginning says so
        self.trainer = Trainer(
            setup.host,
            rows,
            own_seed(context) + path,
            declared_speed=services.seams.speed,
            brake=services.limiter.brake,
        )
        self.steps = RoundSteps(services.seams, joined, self.trainer, setup.plan.train.round_seconds, longest_piece)
        self._setup = setup
        self._store = CheckpointStore(services.seams.storage, f"{context.folder}/path{path}")

    @property
    def at(self) -> int:
        """Steps that the path has been trained for: by this node, or by those who train it, on average."""
        return max(self.trainer.steps_done, self.joined.pace().at)

    def load(self) -> str:
        """Heavy. Go on with what was saved of the local steps; returns a warning, "" when there is none."""
        found = self._store.load()
        if found is None:
            return ""
        arrays, _ = found
        try:
            rounds = int(arrays["rounds"][0])
            self.trainer.restore({name: array for name, array in arrays.items() if name != "rounds"})
            self.rounds = rounds
        except (ValueError, KeyError) as error:
            return f"the saved steps of a path cannot be used ({error}); its blocks go on"
        return ""

    def save(self) -> None:
        """Heavy. LocalProblem when the disk fails."""
        rounds: dict[str, NDArray[Any]] = {"rounds": np.array([self.rounds], np.int64)}
        self._store.save({**self.trainer.state(), **rounds})

    def evaluate(self) -> None:
        """Heavy. How good the path is on test samples that are routed to it, by their document and honestly."""
        test, weights = self._setup.test, self.joined.readout()
        self.tested = self._tested(weights, np.flatnonzero(test.paths == self.path))
        self.tested_by_beginning = self._tested(weights, np.flatnonzero(test.by_beginning == self.path))

    def _tested(self, weights: Floats, rows: Rows) -> Evaluation | None:
        if not len(rows):
            return None
        import torch

        chosen = rows[np.linspace(0, len(rows) - 1, min(len(rows), FEW)).round().astype(np.int64)]
        try:
            return self.trainer.evaluate(weights, self._setup.host.test.rows(torch.from_numpy(chosen)))
        except LocalProblem:
            return None
