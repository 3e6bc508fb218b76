"""What happened lately: a bounded list, and listeners (terminal, log, tests) that are told at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..network.base import Clock
from ..wire.status import NodeEvent
from .event_kinds import Kind

KEPT = 200


class Events:
    """A node's diary. Listeners must not raise."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[NodeEvent] = deque(maxlen=KEPT)
        self._listeners: list[Callable[[NodeEvent], None]] = []

    def listen(self, listener: Callable[[NodeEvent], None]) -> None:
        self._listeners.append(listener)

    def say(self, kind: Kind, text: str, *, warning: bool = False) -> None:
        event = NodeEvent(self._clock.time(), kind, text, warning)
        self._kept.append(event)
        for listener in self._listeners:
            listener(event)

    def latest(self, count: int = 20) -> tuple[NodeEvent, ...]:
        return tuple(self._kept)[-count:]
