"""When a job's progress goes to disk, and resuming from it.

What this node publishes is written at once. The whole state is written now and then, less often if it is large: entries
of others come again from partners, and unpublished progress is only a few rounds' worth.
"""

from __future__ import annotations

import numpy as np

from ...circles.members import CurrentCircle
from ...merging.policy import Policy
from ...storage.checkpoints import Arrays, CheckpointStore
from ...training.evaluation import Cadence
from ...training.progress import TrainProgress
from ...training.trainer import Trainer
from ...wire.errors import LocalProblem
from ...wire.types import Seconds

SAVE_EVERY: Seconds = 10.0  # or less often
SAVE_RATE = 0.5e6  # bytes a second that saving may write, on average
_TRAINER = "trainer/"


def progress_folder(job_folder: str) -> str:
    """Where a job's progress lies; its shards lie beside it."""
    return f"{job_folder}/progress"


class Checkpoints:
    """One model's progress on disk. All methods but `note` and `due` are heavy."""

    def __init__(
        self,
        progress: CheckpointStore,
        policy: Policy,
        trainer: Trainer,
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
                warnings.append("some of what was published could not be written to disk; going on with a new log")
                self._begin_log(self._progress.next_incarnation())
                self.save()
        except LocalProblem as problem:
            warnings.append(f"nothing can be saved ({problem})")
        return found, warnings

    def _load(self, warnings: list[str]) -> bool:
        try:
            saved = self._progress.load()
            if self._progress.damaged:
                what = "nothing else was saved" if saved is None else "going on from the one before"
                warnings.append(f"the newest saved progress was damaged; {what}")
            if saved is not None:
                self._restore(*saved)
            return saved is not None
        except (ValueError, KeyError, LocalProblem) as error:
            warnings.append(f"the saved progress cannot be used ({error}); starting anew")
            return False

    def _begin_log(self, incarnation: int) -> None:
        if self._policy.can.entries is not None:
            self._policy.can.entries.begin_log(incarnation, self._progress.gap)

    def _restore(self, arrays: Arrays, journal: list[bytes]) -> None:
        own = {name.removeprefix(_TRAINER): array for name, array in arrays.items() if name.startswith(_TRAINER)}
        self._trainer.restore(own)
        self._policy.restore(arrays, journal)
        self._own.restore(arrays)
        self._train_progress.rounds = int(arrays["rounds"][0]) + len(journal)  # a bridge among them counts as one


def save_pause(state_bytes: int) -> Seconds:
    """Seconds between saves of a state of this size."""
    return max(SAVE_EVERY, state_bytes / SAVE_RATE)
