"""The seams a node is given instead of reaching out: clock, randomness, storage, compute."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ..network.base import Clock
from ..storage.files import Storage
from ..wire.status import Machine

DISK_THREADS = 8

T = TypeVar("T")


class Compute(Protocol):
    """Runs heavy work: in a thread of its own in real life, inline in a simulation, which charges `steps` for it."""

    def __call__(self, work: Callable[[], T], steps: float = 0) -> Awaitable[T]: ...


class MachineProbe(Protocol):
    """The machine, as far as a guest has to know it."""

    cores: int

    def read(self) -> Machine:
        """Returns the machine's load since the last call. Quick, and may run in any thread."""
        ...

    def minute(self) -> int:
        """Returns the minute of the local day, 0 to 1,439."""
        ...


class Shared(Protocol):
    """Makes something costly. A node makes equal things once, and so does a simulation for all its nodes."""

    def __call__(self, key: Hashable, make: Callable[[], T]) -> T: ...


def make_at_once(key: Hashable, make: Callable[[], T]) -> T:
    """Makes the object anew: the cache of users that share with nobody."""
    return make()


class Memo:
    """Makes equal things once (Shared): read-only data, and models in which trainers put weights in turn."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Any] = {}

    def __call__(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found


async def inline(work: Callable[[], T], steps: float = 0) -> T:
    """Compute for simulations: at once, in place."""
    return work()


@dataclass(frozen=True)
class Seams:
    """Everything a node takes from outside, besides the network."""

    clock: Clock
    rng: random.Random
    storage: Storage
    compute: Compute
    shared: Shared = make_at_once
    threaded: bool = False  # compute runs in a thread of its own
    speed: float | None = None  # local steps a second as a simulation declares them; None: measured
    background: Compute = inline  # for short work that does not wait for training to end
    disk: Compute = inline  # for writes that wait for the disk: several at a time cost it little more than one
    host: MachineProbe | None = None  # None: nothing about the machine concerns this node, as in a simulation

    def close(self) -> None:
        """End the threads, where there are any, without waiting for what they do."""
        for runs in (self.compute, self.background, self.disk):
            if isinstance(runs, ThreadCompute):
                runs.close()


class SystemClock:
    """The machine's clocks; `skew` shifts wall time, to test what wrong clocks do."""

    def __init__(self, skew: float = 0.0) -> None:
        self._skew = skew

    def time(self) -> float:
        return time.time() + self._skew

    def monotonic(self) -> float:
        return time.monotonic()


class ThreadCompute:
    """One thread for training and other long work, so that the event loop stays free; or some, for other work."""

    def __init__(self, name: str = "compute", threads: int = 1) -> None:
        self._thread = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)

    def __call__(self, work: Callable[[], T], steps: float = 0) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def real_world(storage: Storage, skew: float = 0.0) -> Seams:
    """The machine itself. Randomness comes from the system, because keys of private runs are drawn from it."""
    from .machine import PsutilHost

    compute, background, disk = ThreadCompute("compute"), ThreadCompute("aside"), ThreadCompute("disk", DISK_THREADS)
    clock, rng = SystemClock(skew), random.SystemRandom()
    return Seams(
        clock, rng, storage, compute, Memo(), threaded=True, background=background, disk=disk, host=PsutilHost()
    )
