"""Training in a simulation: real steps on one shared bench, for which each node is charged its own virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..config.options import TrainOptions
from ..runtime.seams import OpenModelHost

if TYPE_CHECKING:
    from ..training.host import ModelHost

T = TypeVar("T")


class SimCompute:
    """A node's compute thread in virtual time: one piece of work after the other; local steps take their time.

    Work is done at its beginning, from the state of that moment, and its result is known when its time has passed:
    what comes in meanwhile is for the next piece.
    """

    def __init__(self, steps_per_second: float) -> None:
        self._step_seconds = 1.0 / steps_per_second
        self._turn = asyncio.Lock()
        self._trains = asyncio.Event()
        self._trains.set()

    async def __call__(self, work: Callable[[], T], steps: int = 0) -> T:
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


class SharedHosts:
    """One bench for all nodes that learn the same: read-only data, one model in which each puts its weights in turn."""

    def __init__(self, open_model_host: OpenModelHost) -> None:
        self._open = open_model_host
        self._shared_hosts: dict[tuple[str | None, str, Path | None, str, int], ModelHost] = {}

    def open(self, options: TrainOptions, seed: int, installed_only: bool = False) -> ModelHost:
        task_options = repr(sorted((key, str(value)) for key, value in options.task_options.items()))
        key = (options.task, task_options, options.data, options.device, seed)
        if key not in self._shared_hosts:
            self._shared_hosts[key] = self._open(options, seed, installed_only)
        return self._shared_hosts[key]


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
