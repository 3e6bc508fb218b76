"""When a job's progress goes to disk, and resuming from it.

What this node publishes is written at once. The whole state is written now and then, less often if it is large: entries
of others come again from partners, and unpublished progress is only a few rounds' worth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...circles.members import CurrentCircle
from ...merging.policy import Policy
from ...storage.checkpoints import Arrays, CheckpointStore
from ...training.evaluation import Cadence
from ...training.progress import TrainProgress
from ...wire.errors import LocalProblem
from ...wire.types import Seconds

SAVE_EVERY: Seconds = 10.0  # or less often
SAVE_RATE = 0.5e6  # bytes a second that saving may write, on average
_TRAINER = "trainer/"


class Resumable(Protocol):
    """What does the local steps: its own state is saved and restored with the model's."""

    def state(self) -> Arrays: ...

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """ValueError, and no change, when the arrays belong to another model."""
        ...


def progress_folder(job_folder: str) -> str:
    """The folder of a job's progress; the folder of its shards is next to it."""
    return f"{job_folder}/progress"


class Checkpoints:
    """One model's progress on disk. All methods but `note` and `due` are heavy."""

    def __init__(
        self,
        progress: CheckpointStore,
        policy: Policy,
        trainer: Resumable,
        train_progress: TrainProgress,
        own: CurrentCircle,
        now: Seconds,
    ) -> None:
        self._progress = progress
        self._policy = policy
        self._trainer = trainer
        self._train_progress = train_progress
        self._own = own
        self._pace = Cadence(now, SAVE_EVERY)

    # ---- writing ----

    def note(self, journal: bytes) -> None:
        """Write what was published to disk; LocalProblem when that fails."""
        self._progress.note(journal)

    def due(self, now: Seconds) -> bool:
        """Whether it is time to write the state."""
        return self._pace.due(now) or self._progress.due

    def done(self, begun: Seconds, now: Seconds) -> None:
        """The state was written, or writing it failed."""
        self._pace.done(begun, now, save_pause(self._progress.state_bytes))

    def save(self) -> None:
        """Write everything; LocalProblem when the disk fails, or the user's limit is reached."""
        trainer = {f"{_TRAINER}{name}": array for name, array in self._trainer.state().items()}
        rounds = np.array([self._train_progress.rounds], np.int64)
        self._progress.save({**self._policy.state(), **self._own.arrays(), **trainer, "rounds": rounds})

    def begin_log(self) -> int:
        """The number of a log that this node has not written to yet; LocalProblem when it cannot be noted."""
        return self._progress.next_incarnation()

    # ---- going on ----

    def resume(self) -> tuple[bool, list[str]]:
        """Resume from what was saved, or begin a new log; returns whether something was saved, and warnings."""
        warnings: list[str] = []
        found = self._load(warnings)
        try:
            if not found:
                self._begin_log(self._progress.next_incarnation())
            elif self._progress.gap:
                warnings.append("some of what was published is not on disk; going on with a new log")
                self._begin_log(self._progress.next_incarnation())
                self.save()
        except LocalProblem as problem:
            warnings.append(f"nothing can be saved ({problem})")
        return found, warnings

    def _load(self, warnings: list[str]) -> bool:
        saved = self._progress.load()
        if self._progress.damaged:
            what = "nothing else was saved" if saved is None else "going on from the other of the last two states"
            warnings.append(f"saved progress was damaged; {what}")
        try:
            if saved is not None:
                self._train_progress.rounds = restore(*saved, self._trainer, self._policy, self._own)
            return saved is not None
        except (ValueError, KeyError) as error:
            warnings.append(f"the saved progress cannot be used ({error}); starting anew")
            self._progress.set_all_aside("cannot be used")
            return False

    def _begin_log(self, incarnation: int) -> None:
        if self._policy.can.entries is not None:
            self._policy.can.entries.begin_log(incarnation, self._progress.gap)


def restore(arrays: Arrays, journal: list[bytes], trainer: Resumable, policy: Policy, circle: CurrentCircle) -> int:
    """Load saved progress into the parts of a job; returns its rounds. ValueError or KeyError when it does not fit."""
    own = {name.removeprefix(_TRAINER): array for name, array in arrays.items() if name.startswith(_TRAINER)}
    trainer.restore(own)
    policy.restore(arrays, journal)
    circle.restore(arrays)
    return int(arrays["rounds"][0]) + len(journal)  # a bridge among them counts as one


def save_pause(state_bytes: int) -> Seconds:
    """Seconds between saves of a state of this size."""
    return max(SAVE_EVERY, state_bytes / SAVE_RATE)
