"""Measures the machine a node runs on through psutil: its load, and this node's share of it.

A measurement takes a fifth of a millisecond. Values that this machine does not offer are left out; nothing here raises.
"""

from __future__ import annotations

import contextlib
import time

import psutil

from ..config.schedule import DAY
from ..wire.status import Machine

CHILDREN_EVERY = 10.0  # seconds between searches for child processes, which look at every process there is


class PsutilHost:
    """Measures load since the last measurement. The daemons that this node started count as its own load."""

    def __init__(self) -> None:
        self.cores = psutil.cpu_count() or 1
        self._process = psutil.Process()
        self._children: list[psutil.Process] = []
        self._looked = -CHILDREN_EVERY
        self._before = self._times()

    def minute(self) -> int:
        """The minute of the local day."""
        now = time.localtime()
        return (60 * now.tm_hour + now.tm_min) % DAY

    def read(self) -> Machine:
        before, self._before = self._before, self._times()
        busy, own, all_ = (max(0.0, now - then) for now, then in zip(self._before, before, strict=True))
        plugged, charge = _battery()
        return Machine(
            cpu=min(1.0, busy / all_) if all_ else 0.0,
            own_cpu=min(1.0, own / all_) if all_ else 0.0,
            memory_bytes=self._process.memory_info().rss,
            memory_free_bytes=psutil.virtual_memory().available,
            battery=charge,
            on_battery=not plugged,
        )

    def _times(self) -> tuple[float, float, float]:
        """Processor seconds in use, used by this node, and in all, since the machine started."""
        times = psutil.cpu_times()._asdict()
        times.pop("guest", None), times.pop("guest_nice", None)  # in `user` already
        total = sum(times.values())
        own = 0.0
        for process in [self._process, *self._own_children()]:
            with contextlib.suppress(psutil.Error):
                spent = process.cpu_times()
                own += spent.user + spent.system
        return total - times["idle"] - times.get("iowait", 0.0), own, total

    def _own_children(self) -> list[psutil.Process]:
        now = time.monotonic()
        if now - self._looked >= CHILDREN_EVERY:
            self._looked = now
            with contextlib.suppress(psutil.Error):
                self._children = self._process.children(recursive=True)
        return self._children


def _battery() -> tuple[bool, float | None]:
    """Whether the machine is plugged in, and its charge. A machine without a battery counts as plugged in."""
    with contextlib.suppress(AttributeError, OSError, RuntimeError, ValueError):  # each on some system
        battery = psutil.sensors_battery()
        if battery is not None:
            return battery.power_plugged is not False, max(0.0, min(1.0, battery.percent / 100))
    return True, None
