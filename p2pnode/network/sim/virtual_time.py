"""Virtual time: an asyncio loop that never waits. When nothing is ready, its clock jumps to the next timer.

`asyncio.sleep`, `asyncio.timeout` and `loop.time()` work unchanged. There are no sockets and no threads, so the order
of events depends on the program alone: timers due at the same time fire in the order in which they were set.

What runs in a context where PROCESS is set belongs to a simulated process. Such a process can be frozen, as by SIGSTOP,
and something can be done at its n-th step from now, so that it can be killed at any await.
"""

from __future__ import annotations

import asyncio
from asyncio.base_events import BaseEventLoop
from asyncio.events import Handle, TimerHandle
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heapify, heappop, heappush
from typing import Any, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PROCESS: ContextVar[int] = ContextVar("simulated process", default=-1)
_MANY_CANCELLED = 1000  # cancelled timers are removed when there are more than this and they are the majority


class VirtualDeadlock(RuntimeError):
    """Nothing is ready and no timer is set: in real time the program would hang forever."""


class _Timer(TimerHandle):
    """A timer without the debugging support of asyncio's own. `_scheduled`: it is in the heap."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: VirtualLoop, context: Context
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._scheduled = True
        self._source_traceback = None
        self._repr = None


class VirtualLoop(BaseEventLoop):
    """The event loop. It replaces asyncio's timer heap, whose comparisons in Python cost more than all the rest."""

    _ready: deque[Handle]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._timers_set = 0
        self._timers_cancelled = 0
        self._held: dict[int, list[Handle]] = {}  # what frozen processes would do now
        self._steps: dict[int, tuple[int, Callable[[], None]]] = {}  # steps left of a process, and what is done then
        self._watched = False  # whether one of the two has something

    def time(self) -> float:
        return self._now

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> TimerHandle:
        timer = _Timer(when, callback, args, self, copy_context() if context is None else context)
        self._timers_set += 1
        heappush(self._timers, (when, self._timers_set, timer))
        return timer

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> Handle:
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def run_in_executor(self, executor: object, func: Callable[[*Ts], T], *args: *Ts) -> NoReturn:
        raise RuntimeError("no threads in virtual time: pass a `compute` that runs inline")

    # ---- simulated processes ----

    def freeze(self, process: int) -> None:
        """Let a process do nothing until `thaw`; its timers fire then."""
        self._held.setdefault(process, [])
        self._watched = True

    def thaw(self, process: int) -> None:
        self._ready.extend(self._held.pop(process, []))
        self._watched = bool(self._held or self._steps)

    def at_step(self, process: int, count: int, do: Callable[[], None]) -> None:
        """Call `do` before the process's `count`-th step from now: a callback, or a task between two awaits."""
        self._steps[process] = (count, do)
        self._watched = True

    def forget_steps(self, process: int) -> None:
        """Wait for no step of a process any more."""
        self._steps.pop(process, None)
        self._watched = bool(self._held or self._steps)

    def forget_process(self, process: int) -> None:
        """The process has ended: nothing holds it, and no step of it is waited for. What it would do runs out."""
        self._steps.pop(process, None)
        self.thaw(process)

    def _keeps(self, handle: Handle) -> bool:
        """Whether a step has to wait, because its process is frozen."""
        process = handle._context.get(PROCESS, -1)  # type: ignore[attr-defined]
        if process in self._held:
            self._held[process].append(handle)
            return True
        if process in self._steps:
            left, do = self._steps[process]
            self._steps[process] = (left - 1, do)
            if left <= 1:
                del self._steps[process]
                do()
        return False

    def close(self) -> None:
        super().close()
        self._timers.clear()

    def _timer_handle_cancelled(self, handle: _Timer) -> None:
        if not handle._scheduled:
            return
        self._timers_cancelled += 1
        if self._timers_cancelled > _MANY_CANCELLED and self._timers_cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2]._cancelled]
            heapify(self._timers)
            self._timers_cancelled = 0

    def _run_once(self) -> None:
        """Run all callbacks that are ready or become so; if there are none, first go to the next timers."""
        ready = self._ready
        if not ready and not self._stopping:
            self._jump()
        while ready and not self._stopping:
            handle = ready.popleft()
            if handle._cancelled or (self._watched and self._keeps(handle)):
                continue
            handle._run()

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
            self._timers_cancelled -= 1
        if not timers:
            raise VirtualDeadlock(f"at {self._now:.3f} s nothing is ready and no timer is set; {self._waiting()}")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            timer = heappop(timers)[2]
            timer._scheduled = False
            if timer._cancelled:
                self._timers_cancelled -= 1
            else:
                self._ready.append(timer)

    def _waiting(self) -> str:
        names = sorted(task.get_name() for task in asyncio.all_tasks(self))
        return f"{len(names)} tasks wait: {', '.join(names[:8])}"

    # ---- required by BaseEventLoop ----

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, starting at 0. Tasks that are left are cancelled.

    A notebook calls this from within its own loop, which stands still meanwhile, as for any other function.
    """
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(main)
    finally:
        asyncio._set_running_loop(outer)
