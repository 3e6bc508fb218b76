"""Beside the local steps: gradients around the weights, and a thread for what training does not wait for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from ..merging.deltaset.policy import DeltaSetPolicy
from ..merging.policy import Policy
from .host import Vector
from .trainer import Trainer


def measure_influence(policy: Policy, trainer: Trainer, weights: Vector) -> None:
    """After a round, where the policy judges by influence: its last gradient; if it is time, two at weights ± ε."""
    scorer = policy.author.scorer if isinstance(policy, DeltaSetPolicy) else None
    influence = None if scorer is None else scorer.influence
    if influence is None:
        return
    trainer.keeps_gradient = True
    if trainer.last_gradient is not None:
        influence.follow(trainer.last_gradient)
    if influence.due(trainer.steps_done):
        above, below = trainer.slopes(influence.points(weights, trainer.steps_done))
        influence.note(above, below)


class BackgroundWorker:
    """Runs small work in a thread of its own. While that is busy, further work is passed over: nobody ever waits."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside")
        self._running: Future[None] | None = None

    def __call__(self, work: Callable[[], None]) -> None:
        if self._running is not None:
            if not self._running.done():
                return
            self._running.result()  # what went wrong there is a bug, and should show
        self._running = self._thread.submit(work)
