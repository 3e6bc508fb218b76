"""Work next to the local steps: gradients for a selector, and a thread for work that training does not wait for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from ..compression.selector import Selector
from ..compression.weights import Floats
from .trainer import Trainer


def feed_gradients(selector: Selector | None, trainer: Trainer, weights: Floats) -> None:
    """Gives the selector a round's last gradient and, when it is due, the gradients at two more points.

    Does nothing for a policy without a selector, and for a selector that needs no gradients.
    """
    gradients = None if selector is None else selector.gradients
    if gradients is None:
        return
    trainer.keeps_gradient = True
    if trainer.last_gradient is not None:
        gradients.follow(trainer.last_gradient)
    if gradients.due(trainer.steps_done):
        above, below = trainer.gradients_at(gradients.points(weights, trainer.steps_done))
        gradients.note(above, below)


class BackgroundWorker:
    """Runs small work in one thread. Work that arrives while the thread is busy is dropped, so nobody ever waits."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")
        self._running: Future[None] | None = None

    def __call__(self, work: Callable[[], None]) -> None:
        if self._running is not None:
            if not self._running.done():
                return
            self._running.result()  # an exception there is a bug, and should show
        self._running = self._thread.submit(work)
