"""A simulated process: a node with its clock, its network and its disk."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..network.sim import SimNetwork
from ..node.node import Node
from ..wire.types import Seconds
from .compute import SimCompute
from .disk import ProcessDisk
from .scenario import EPOCH


class SimClock:
    """A node's clocks in virtual time; wall time is wrong by `skew`, which may change."""

    def __init__(self, skew: Seconds) -> None:
        self._loop = asyncio.get_running_loop()
        self.skew = skew

    def time(self) -> float:
        return self._loop.time() + EPOCH + self.skew

    def monotonic(self) -> float:
        return self._loop.time()


@dataclass
class Process:
    """A running node."""

    node: Node
    network: SimNetwork
    disk: ProcessDisk
    clock: SimClock
    task: asyncio.Task[None]
    compute: SimCompute | None = None  # None: it only meets
