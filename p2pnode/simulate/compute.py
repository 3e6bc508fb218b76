"""Training in a simulation: real steps on one shared model, for which each node is charged its own virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class SimCompute:
    """A node's compute thread in virtual time: one piece of work after the other; local steps take time.

    Work is done at its beginning, from the state of that moment, and its result is known when its time has passed:
    what comes in meanwhile is for the next piece.
    """

    def __init__(self, steps_per_second: float) -> None:
        self._step_seconds = 1.0 / steps_per_second
        self._turn = asyncio.Lock()
        self._trains = asyncio.Event()
        self._trains.set()

    async def __call__(self, work: Callable[[], T], steps: float = 0) -> T:
        if steps:
            await self._trains.wait()
        async with self._turn:
            try:
                return work()
            finally:
                if steps:
                    await asyncio.sleep(steps * self._step_seconds)

    def rest(self) -> None:
        """Begin no more local steps; everything else goes on."""
        self._trains.clear()


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch with one thread, so that sums are always taken in the same order."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
