"""Counts what happens in a simulated swarm, and hashes it: two equal runs have equal digests."""

from __future__ import annotations

import hashlib
import struct
from collections import Counter, deque
from typing import NamedTuple
from zlib import crc32

KINDS = (
    "call",
    "answer",
    "lost",
    "doubled",
    "late",
    "unreachable",
    "contact",
    "nearest",
    "stream",
    "piece",
    "reset",
    "health",
    "fault",
    "note",
)
_CODE = {kind: code for code, kind in enumerate(KINDS)}
_EVENT = struct.Struct("<qBiiqI")  # microseconds, kind, from, to, bytes, checksum of the content
_FOLD_AT = 1 << 16


class TraceEvent(NamedTuple):
    """One event; peers are indices in the swarm (-1: none), `time` is virtual microseconds."""

    time: int
    kind: str
    source: int
    target: int
    size: int


class Trace:
    """Takes every event of a swarm. Memory is bounded: only the latest `keep` events can be read."""

    def __init__(self, keep: int = 0) -> None:
        self.counts: Counter[str] = Counter()
        self.latest: deque[TraceEvent] = deque(maxlen=keep)
        self._hash = hashlib.sha256()
        self._unfolded = bytearray()
        self._keep = keep

    def add(self, now: float, kind: str, source: int, target: int = -1, data: bytes = b"") -> None:
        """Add an event between two peers; `data` is what was sent."""
        time = round(now * 1e6)
        size = len(data)
        self.counts[kind] += 1
        self._unfolded += _EVENT.pack(time, _CODE[kind], source, target, size, crc32(data))
        if len(self._unfolded) > _FOLD_AT:
            self._fold()
        if self._keep:
            self.latest.append(TraceEvent(time, kind, source, target, size))

    def digest(self) -> str:
        """The hash of all events so far."""
        self._fold()
        return self._hash.copy().hexdigest()

    def _fold(self) -> None:
        self._hash.update(self._unfolded)
        self._unfolded.clear()
