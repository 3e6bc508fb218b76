"""Checks whether a node is healthy: its jobs make progress or it rests on purpose, disk and event loop work.

Checked once a second. The state of the network is the node's condition and not part of this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from ..jobs.contract import JobPace
from ..runtime.limiter import Limiter
from ..runtime.seams import Seams
from ..wire.errors import LocalProblem
from ..wire.status import NodeEvent
from ..wire.types import Seconds

STALLED: Seconds = 120.0  # without a local step, and the time of STEPS of them
STEPS = 20
PREPARED: Seconds = 600.0  # for coming to learn at all: data, weights of others
LATELY: Seconds = 60.0  # for which a trouble with disk or loop counts
PROBE_EVERY: Seconds = 60.0
PROBE_AGAIN: Seconds = 15.0  # after a trouble with the disk: within LATELY, so that a full disk is never called well
PROBE_FILE = "probe"
PROBE_BYTES = 16_384  # an empty file still fits on many a full disk


@dataclass(frozen=True)
class JobProgress:
    """What was last seen of one job."""

    steps: int | None  # None: it is not prepared yet
    speed: float  # steps per second
    moved: Seconds  # when the steps last did, or the job had nothing to do

    def problem(self, now: Seconds) -> str:
        """What is wrong with it; "" while it goes on."""
        still = now - self.moved
        if self.steps is None:
            return f"learning did not begin for {still:.0f} s" if still > PREPARED else ""
        patience = STALLED + (STEPS / self.speed if self.speed > 0 else 0.0)
        return f"no local step for {still:.0f} s" if still > patience else ""


class HealthMonitor:
    """Watches the health of one node."""

    def __init__(self, seams: Seams, limiter: Limiter) -> None:
        self._seams = seams
        self._limiter = limiter
        self._expected: Seconds | None = None  # since when jobs should make progress; None: nothing is to be learned
        self._progress: dict[str, JobProgress] = {}  # of each job that goes on
        self._disk: tuple[Seconds, str] | None = None  # its latest trouble
        self._probed: Seconds | None = None

    def expect_progress(self) -> None:
        """Starts to watch the progress of the node's jobs."""
        self._expected = self._seams.clock.monotonic()

    def hear(self, event: NodeEvent) -> None:
        """Note an event of the node; those about the disk matter here."""
        if event.kind == "disk":
            self._disk = (self._seams.clock.monotonic(), event.text)

    async def look(self, paces: Mapping[str, JobPace | None]) -> None:
        """Check again: how much each job has done (None: it is not prepared yet)."""
        now = self._seams.clock.monotonic()
        if self._expected is not None:
            self._progress = {name: self._seen(name, pace, now, self._expected) for name, pace in paces.items()}
        every = PROBE_EVERY if self._disk is None or now - self._disk[0] >= LATELY else PROBE_AGAIN
        if self._seams.host is not None and (self._probed is None or now - self._probed >= every):
            self._probed = now
            await self._seams.background(self._probe)

    def _seen(self, name: str, pace: JobPace | None, now: Seconds, expected: Seconds) -> JobProgress:
        steps, speed = (None, 0.0) if pace is None else (pace.steps, pace.steps_per_second)
        before = self._progress.get(name) or JobProgress(None, 0.0, expected)
        idle = bool(self._limiter.resting) or (pace is not None and pace.samples == 0)
        return JobProgress(steps, speed, now if idle or steps != before.steps else before.moved)

    def _probe(self) -> None:
        try:
            self._seams.storage.write(PROBE_FILE, bytes(PROBE_BYTES))
        except LocalProblem as problem:
            self._disk = (self._seams.clock.monotonic(), str(problem))
        with contextlib.suppress(LocalProblem):
            self._seams.storage.delete(PROBE_FILE)

    def reasons(self) -> tuple[str, ...]:
        """What is wrong with the node; empty while it is healthy."""
        now, held_up = self._seams.clock.monotonic(), self._limiter.held_up
        problems = {name: progress.problem(now) for name, progress in self._progress.items()}
        several = len(problems) > 1
        found = [f"{name}: {problem}" if several else problem for name, problem in problems.items() if problem]
        if self._disk is not None and now - self._disk[0] < LATELY:
            found.append(f"the disk takes no writes: {self._disk[1]}")
        if held_up is not None and now - held_up[0] < LATELY:
            found.append(f"the node's loop was held up for {held_up[1]:.0f} s")
        return tuple(found)
