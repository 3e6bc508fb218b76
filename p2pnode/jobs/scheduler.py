"""Shares the node's one compute thread fairly between its jobs, and measures how much of its time goes unused.

A job alone gets the thread as it is. Of several jobs, the one that has used least of its share is next; no piece of
work should take longer than `longest_piece`, so that the others never wait long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from ..network.base import Clock
from ..runtime.seams import Compute
from ..wire.types import Seconds

PIECE: Seconds = 0.25  # of compute time, for a job of the usual weight where there are several
WINDOW: Seconds = 60.0  # over which shares and idle time are measured

T = TypeVar("T")


class Scheduler:
    """Gives jobs their turns on the compute thread."""

    def __init__(self, compute: Compute, clock: Clock) -> None:
        self._compute = compute
        self._clock = clock
        self._jobs: dict[str, JobCompute] = {}
        self._running = 0  # pieces of work under way; more than one only while a job is alone
        self._level: Seconds = 0.0  # what the job of the latest turn had used before it
        self._busy = BusyTime(clock)

    def add(self, job: str, weight: float = 1.0) -> JobCompute:
        """The compute of a new job."""
        self._jobs[job] = compute = JobCompute(self, weight, BusyTime(self._clock))
        return compute

    def remove(self, job: str) -> None:
        """The job has ended; its share goes to the others."""
        ended = self._jobs.pop(job, None)
        for turn in [] if ended is None else ended.turns:
            turn.cancel()

    @property
    def crowded(self) -> bool:
        """Whether jobs have to share the thread."""
        return len(self._jobs) > 1

    def weights(self) -> float:
        """Returns the sum of all jobs' weights."""
        return sum(job.weight for job in self._jobs.values())

    def share(self, job: str) -> float | None:
        """Share of the thread's time that a job used lately, 0 to 1; None for a job that is not scheduled."""
        return self._jobs[job].busy.share() if job in self._jobs else None

    def idle(self) -> float:
        """Share of the thread's time in which it had nothing to do lately, 0 to 1."""
        return 1.0 - self._busy.share()

    async def run(self, job: JobCompute, work: Callable[[], T], steps: float) -> T:
        """The result of a piece of work, which is done when it is the job's turn."""
        job.used = max(job.used, self._level)  # time a job did not ask for is nothing it can claim later
        if self.crowded and (self._running or any(other.turns for other in self._jobs.values())):
            await self._turn(job)
        else:
            self._begin(job)
        begun = self._clock.monotonic()
        job.busy.begin()
        try:
            return await self._compute(work, steps)
        finally:
            job.used += (self._clock.monotonic() - begun) / job.weight
            job.busy.end()
            self._end()

    async def _turn(self, job: JobCompute) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job.turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end()  # the turn had come; it goes to the next
            raise

    def _begin(self, job: JobCompute) -> None:
        self._level = job.used
        self._running += 1
        self._busy.begin()

    def _end(self) -> None:
        self._running -= 1
        self._busy.end()
        if self.crowded:  # whoever just ended may have more to do at once: it takes part in the choice
            asyncio.get_running_loop().call_soon(self._next)
        else:
            self._next()

    def _next(self) -> None:
        """Give the turn to the waiting job that has used least of its share."""
        while not self._running:
            waiting = [job for job in self._jobs.values() if job.turns]
            if not waiting:
                return
            job = min(waiting, key=lambda job: job.used)
            turn = job.turns.popleft()
            if not turn.done():
                self._begin(job)
                turn.set_result(None)


class JobCompute:
    """The compute thread as one job sees it (runtime.seams.Compute)."""

    def __init__(self, scheduler: Scheduler, weight: float, busy: BusyTime) -> None:
        self.weight = weight
        self.used: Seconds = 0.0  # compute time divided by weight
        self.turns: deque[asyncio.Future[None]] = deque()  # pieces of work that wait
        self.busy = busy
        self._scheduler = scheduler

    def longest_piece(self) -> Seconds | None:
        """How long a piece of work of more than one step should take at most; None while the job is alone."""
        return PIECE * self.weight if self._scheduler.crowded else None

    def fraction(self) -> float:
        """The job's part of the compute thread while all jobs are busy; 1 while it is alone."""
        return self.weight / self._scheduler.weights()

    async def __call__(self, work: Callable[[], T], steps: float = 0) -> T:
        return await self._scheduler.run(self, work, steps)


class BusyTime:
    """Measures the share of time in which something was going on, over the last one or two windows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0  # of what is going on
        self._earlier: Seconds = 0.0  # busy time of the window before this one
        self._seconds: Seconds = 0.0  # and of this one, up to _noted
        self._born = self._window = self._noted = clock.monotonic()

    def begin(self) -> None:
        self._note()
        self._count += 1

    def end(self) -> None:
        self._note()
        self._count -= 1

    def share(self) -> float:
        """0 to 1."""
        self._note()
        measured = self._noted - max(self._born, self._window - WINDOW)
        return (self._earlier + self._seconds) / measured if measured > 0 else 0.0

    def _note(self) -> None:
        """Add the time since the last note, window by window."""
        now = self._clock.monotonic()
        while now >= (end := self._window + WINDOW):
            busy = end - self._noted if self._count else 0.0
            self._earlier, self._seconds = self._seconds + busy, 0.0
            self._window = self._noted = end
        self._seconds += now - self._noted if self._count else 0.0
        self._noted = now
