"""A simulated process: a node with its clock, its network and its disk."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..network.sim import SimNetwork
from ..node.node import Node
from ..storage.files import MemoryStorage, Part
from ..wire.types import Seconds
from .compute import SimCompute
from .scenario import EPOCH


class SimClock:
    """A node's clocks in virtual time; wall time is wrong by `skew`."""

    def __init__(self, skew: Seconds) -> None:
        self._loop = asyncio.get_running_loop()
        self._offset = EPOCH + skew

    def time(self) -> float:
        return self._loop.time() + self._offset

    def monotonic(self) -> float:
        return self._loop.time()


class ProcessDisk:
    """A disk as one process sees it: after its crash nothing it writes reaches the disk."""

    def __init__(self, disk: MemoryStorage) -> None:
        self._disk = disk
        self.gone = False
        self.warnings: list[str] = []

    def path(self, name: str) -> str:
        return self._disk.path(name)

    def read(self, name: str) -> bytes | None:
        return self._disk.read(name)

    def write(self, name: str, *parts: Part) -> None:
        if not self.gone:
            self._disk.write(name, *parts)

    def append(self, name: str, data: bytes) -> None:
        if not self.gone:
            self._disk.append(name, data)

    def move(self, name: str, target: str) -> None:
        if not self.gone:
            self._disk.move(name, target)

    def delete(self, name: str) -> None:
        if not self.gone:
            self._disk.delete(name)

    def used(self, folder: str) -> int:
        return self._disk.used(folder)

    def names(self, folder: str) -> list[str]:
        return self._disk.names(folder)


@dataclass
class Process:
    """A running node."""

    node: Node
    network: SimNetwork
    disk: ProcessDisk
    task: asyncio.Task[None]
    compute: SimCompute | None = None  # None: it only meets
