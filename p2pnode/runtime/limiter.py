"""Keeps a node within its limits (the rules are in `limits.py`) and reports when and why it rests.

A resting node does no local steps and begins no exchanges; it stays in the swarm and answers. Whatever begins work
waits for `free()`; a round that is under way calls `brake()` after each local step.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping

from ..config.resolve import changed
from ..storage.checked import set_aside
from ..wire.control import ControlAnswer, ControlRequest
from ..wire.errors import Damaged, LocalProblem
from ..wire.status import NO_LIMITS, LimitOptions, Machine
from ..wire.types import Seconds
from .events import Events
from .limits import MachineSituation, Use, first_duty, next_duty, noticed, pause_after, resting
from .seams import Seams
from .throttle import Throttles

LIMIT_COMMANDS = ("pause", "resume", "limits")
EVERY: Seconds = 1.0
PAUSED_FILE = "paused"  # exists while the user's pause lasts, so that a restart keeps it
PAUSED = b"by the user\n"
SHORTEST_SLEEP: Seconds = 0.005
LONGEST_SLEEP: Seconds = 0.05  # so that a pause takes effect at once
LATE: Seconds = 5.0  # a measurement that is this late was held up by the node's own event loop


class Limiter:
    """The limits of one node. Without a machine to measure (in a simulation) only pauses and rates count."""

    def __init__(self, seams: Seams, events: Events, throttles: Throttles, limits: LimitOptions) -> None:
        self.limits = limits
        self.resting = ""  # the reason, or "" while the node works
        self.machine: Machine | None = None
        self.held_up: tuple[Seconds, Seconds] | None = None  # when the loop was last late, and by how much
        self._seams = seams
        self._events = events
        self._throttles = throttles
        self._use = Use()
        self._worked: Seconds | None = None  # processor time of the training thread at the last `brake`
        self._owed: Seconds = 0.0  # rest that is due
        self._duty = 1.0  # share of the time for local steps
        self._free = asyncio.Event()
        self._reported = ""
        self._paused = self._was_paused()
        self._follow(limits)

    # ---- for those who work ----

    async def free(self) -> None:
        """Returns while the node may work."""
        await self._free.wait()

    def brake(self) -> bool:
        """Called after each local step by the thread that trains: waits for as long as --max-cpu demands.

        Returns True when the round should end here.
        """
        before, self._worked = self._worked, time.thread_time()
        if before is not None and self._duty < 1.0:
            self._owed += pause_after(max(0.0, self._worked - before), self._duty)
            while self._owed >= SHORTEST_SLEEP and not self.resting:
                begun = time.perf_counter()
                time.sleep(min(self._owed, LONGEST_SLEEP))
                self._owed = max(0.0, self._owed - (time.perf_counter() - begun))
        return bool(self.resting)

    @property
    def cores(self) -> int | None:
        """How many cores training may count on, including one for everything else; None: all there are."""
        host, share = self._seams.host, self.limits.max_cpu
        return None if host is None or share is None else 1 + max(1, int(share * host.cores))

    # ---- for the user ----

    def execute(self, request: ControlRequest, learns: bool) -> ControlAnswer:
        """One of LIMIT_COMMANDS; LocalProblem or UsageError when it cannot be done."""
        if request.do == "limits":
            return ControlAnswer(said=self.limit(request.limits))
        if not learns:
            raise LocalProblem("this node learns nothing: there is nothing to pause")
        return ControlAnswer(said=self.pause() if request.do == "pause" else self.resume())

    def pause(self) -> str:
        """Rest from now on, also after a restart, until `resume`."""
        self._paused = True
        self._decide()
        self._report()
        with _noted(self._events):
            self._seams.storage.write(PAUSED_FILE, PAUSED)
        return "paused; the node stays in its swarm and answers, also after a restart, until `resume`"

    def resume(self) -> str:
        """End a pause."""
        self._paused = False
        self._decide()
        self._report()
        with _noted(self._events):
            self._seams.storage.delete(PAUSED_FILE)
        return f"no longer paused by you, but it rests: {self.resting}" if self.resting else "working again"

    def limit(self, written: Mapping[str, object]) -> str:
        """Change some of the limits until the node ends; UsageError when they are wrong."""
        self._follow(changed(self.limits, written))
        self._report()
        return f"limits until the node ends: {limits_in_words(self.limits)}"

    def _was_paused(self) -> bool:
        """Whether the user paused the node before it ended. Only the existence of the file counts."""
        storage = self._seams.storage
        try:
            return storage.read(PAUSED_FILE) is not None
        except Damaged as problem:
            set_aside(storage, PAUSED_FILE, str(problem), "the node stays paused until `resume`")
            with _noted(self._events):
                storage.write(PAUSED_FILE, PAUSED)
            return True
        except LocalProblem as problem:
            self._events.say("disk", f"whether this node was paused is not known: {problem}", warning=True)
            return False

    # ---- life ----

    async def run(self) -> None:
        """Measure the machine every second until cancelled; returns at once where there is none to measure."""
        clock = self._seams.clock
        self._report()
        while self._seams.host is not None:
            self.machine = await self._seams.background(self._seams.host.read)
            self._measure(self.machine, self._seams.host.cores, clock.monotonic())
            self._decide()
            self._report()
            begun = clock.monotonic()
            await asyncio.sleep(EVERY)
            late = clock.monotonic() - begun - EVERY
            if late > LATE:
                self.held_up = (clock.monotonic(), late)

    def _measure(self, machine: Machine, cores: int, now: Seconds) -> None:
        self._use = noticed(self._use, max(0.0, machine.cpu - machine.own_cpu), cores, now)
        if not self.resting:
            maximum = first_duty(self.limits.max_cpu, cores)
            self._duty = min(maximum, next_duty(self._duty, self.limits.max_cpu, machine.own_cpu))

    def _follow(self, limits: LimitOptions) -> None:
        self.limits = limits
        self._throttles.follow(limits)
        self._duty = 1.0 if self._seams.host is None else first_duty(limits.max_cpu, self._seams.host.cores)
        self._decide()

    def _decide(self) -> None:
        host, machine = self._seams.host, self.machine
        now = MachineSituation(
            minute=0 if host is None else host.minute(),
            paused=self._paused,
            on_battery=machine is not None and machine.on_battery,
            in_use=self._use.in_use,
        )
        rules = self.limits if host is not None else NO_LIMITS
        self.resting = resting(now, rules)
        if self.resting:
            self._free.clear()
        else:
            self._free.set()

    def _report(self) -> None:
        """Report when the node begins to rest, and when it works again."""
        if self.resting and not self._reported:
            self._events.say("paused", f"resting: {self.resting}; peers are still answered")
        elif self._reported and not self.resting:
            self._events.say("working", f"working again (it was {self._reported})")
        self._reported = self.resting


@contextlib.contextmanager
def _noted(events: Events) -> Iterator[None]:
    """A pause that cannot be written to disk is reported, and works until the node ends."""
    try:
        yield
    except LocalProblem as problem:
        events.say("disk", f"a restart will not remember this: {problem}", warning=True)


def limits_in_words(limits: LimitOptions) -> str:
    """All limits in force, in one line."""
    words = [
        f"{name} {rate / 1000:g} kB/s"
        for name, rate in (("upload", limits.max_upload), ("download", limits.max_download))
        if rate is not None
    ]
    words += [f"cpu {limits.max_cpu:.0%}"] if limits.max_cpu is not None else []
    words += ["rests on battery"] if limits.pause_on_battery else []
    words += ["rests while the machine is in use"] if limits.idle_only else []
    words += [f"works {limits.schedule}"] if limits.schedule else []
    return ", ".join(words) or "none"
