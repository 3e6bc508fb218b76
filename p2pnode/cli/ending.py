"""Ends the process in time: the first signal asks the node to leave; a second one, or a long wait, ends it at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

LEAVE_LIMIT = 4.5  # seconds from the first signal to the end of the process, besides what handing over may take
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
LONGEST_LINE = 2000


class Ending:
    """Handles signals on the running loop. `leave` asks the node to leave; `sweep` cleans up before a hard end.

    `more` returns how many seconds beyond the usual limit leaving may take.
    """

    def __init__(
        self, leave: Callable[[], None], sweep: Callable[[], None], more: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._leave = leave
        self._sweep = sweep
        self._more = more
        self._timer: threading.Timer | None = None
        for number in SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup keeps its meaning
                asyncio.get_running_loop().add_signal_handler(number, self._signalled)

    def _signalled(self) -> None:
        if self._timer is not None:
            self.at_once(INTERRUPTED)
        self._timer = threading.Timer(
            LEAVE_LIMIT + self._more(), self._too_late
        )  # a thread: the loop itself may be what hangs
        self._timer.daemon = True
        self._timer.start()
        self._leave()

    def _too_late(self) -> None:
        self.at_once(1, "leaving took too long, so the process was ended")

    def at_once(self, code: int, reason: str = "") -> NoReturn:
        """End the process now; the daemon and its sockets go with it."""
        with contextlib.suppress(Exception):  # whatever it is, the process must end
            self._sweep()
        end_process(code, reason)


def end_at_signals() -> None:
    """Makes SIGTERM raise SystemExit until there is an `Ending`, so that no file is left half-written."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))


def end_process(code: int, reason: str = "") -> NoReturn:
    """Exit without waiting for threads: one may be inside an import or a training step for long."""
    with contextlib.suppress(Exception):  # the stream may be gone, closed or in use: the process must end
        if sys.stdout.isatty():
            sys.stdout.write("\x1b[?25h")  # a live view that was cut off has hidden the cursor
        sys.stdout.flush()
    with contextlib.suppress(Exception):  # the same
        if reason:
            complain(reason, code)
        sys.stderr.flush()
    os._exit(code)


def complain(problem: str, code: int) -> int:
    """Print what is wrong in one line on stderr. A peer may have written part of it, so escapes are removed."""
    from ..watch.text import clean, one_line  # takes a tenth of a second, so only when needed

    sys.stderr.write(f"p2pnode: {clean(one_line(problem), LONGEST_LINE)}\n")
    return code
