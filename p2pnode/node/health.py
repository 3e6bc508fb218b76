"""Checks whether a node is healthy: its jobs make progress or it rests on purpose, disk and event loop work.

Checked once a second. The state of the network is the node's condition and not part of this.
"""

from __future__ import annotations

import contextlib

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
PROBE_FILE = "probe"


class HealthMonitor:
    """Watches the health of one node."""

    def __init__(self, seams: Seams, limiter: Limiter) -> None:
        self._seams = seams
        self._limiter = limiter
        self._steps: int | None = None
        self._speed = 0.0
        self._moved: Seconds | None = None  # when the steps last did; None: nothing is to be learned
        self._disk: tuple[Seconds, str] | None = None  # its latest trouble
        self._probed = seams.clock.monotonic()

    def expect_progress(self) -> None:
        """From now on the node's jobs should make progress."""
        self._moved = self._seams.clock.monotonic()

    def hear(self, event: NodeEvent) -> None:
        """Note an event of the node; those about the disk matter here."""
        if event.kind == "disk":
            self._disk = (self._seams.clock.monotonic(), event.text)

    async def look(self, steps: int | None, samples: int, speed: float) -> None:
        """Check again: the jobs did `steps` steps (None: none is prepared yet) and have `samples` to work on."""
        now = self._seams.clock.monotonic()
        self._speed = speed
        idle = bool(self._limiter.resting) or (steps is not None and samples == 0)
        if self._moved is not None and (steps != self._steps or idle):
            self._moved, self._steps = now, steps
        if self._seams.host is not None and now - self._probed >= PROBE_EVERY:
            self._probed = now
            await self._seams.background(self._probe)

    def _probe(self) -> None:
        try:
            self._seams.storage.write(PROBE_FILE, b"")
        except LocalProblem as problem:
            self._disk = (self._seams.clock.monotonic(), str(problem))
        with contextlib.suppress(LocalProblem):
            self._seams.storage.delete(PROBE_FILE)

    def reasons(self) -> tuple[str, ...]:
        """What is wrong with the node; empty while it is healthy."""
        now, held_up = self._seams.clock.monotonic(), self._limiter.held_up
        found = []
        if self._moved is not None and (still := now - self._moved) > self._patience():
            found.append(
                f"learning did not begin for {still:.0f} s"
                if self._steps is None
                else f"no local step for {still:.0f} s"
            )
        if self._disk is not None and now - self._disk[0] < LATELY:
            found.append(f"the disk takes no writes: {self._disk[1]}")
        if held_up is not None and now - held_up[0] < LATELY:
            found.append(f"the node's loop was held up for {held_up[1]:.0f} s")
        return tuple(found)

    def _patience(self) -> Seconds:
        if self._steps is None:
            return PREPARED
        return STALLED + (STEPS / self._speed if self._speed > 0 else 0.0)
