"""Faults of simulated processes, their disks and clocks: carries out what network.sim.faults describes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from contextvars import copy_context
from math import inf
from typing import TYPE_CHECKING

from ..network.sim import Fault
from ..network.sim.virtual_time import VirtualLoop
from ..wire.types import Seconds

if TYPE_CHECKING:
    from .simulation import Simulation

VANISHING = ("power", "rollback", "rot")  # kinds that begin with the end of the process


class MachineFaults:
    """Carries out the faults of one simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._context = copy_context()  # of no process, so that nothing here is frozen with one
        self._frozen: Counter[int] = Counter()  # how many reasons each process has to stand still
        self._slow: Counter[int] = Counter()  # by machine: milliseconds that each write takes
        self._full: Counter[int] = Counter()
        self._restarts: dict[int, Seconds] = {}  # after a process dies at a step or an operation
        self._doomed: dict[int, int] = {}  # by machine: operations after which its next process dies

    def schedule(self, faults: Iterable[Fault]) -> None:
        """Take images of disks that faults will return to."""
        loop = asyncio.get_running_loop()
        for fault in faults:
            if fault.kind == "rollback":
                for index in fault.peers:
                    moment = max(0.0, fault.time - fault.amount)
                    loop.call_at(moment, self._simulation.disks[index].remember, _image(fault))

    def begin(self, fault: Fault) -> None:
        """Let a fault happen."""
        for index in fault.peers:
            if index < len(self._simulation.disks):
                self._begin(fault, index)

    def _begin(self, fault: Fault, index: int) -> None:
        simulation = self._simulation
        process, disk = simulation.processes.get(index), simulation.disks[index]
        if fault.kind in VANISHING:
            simulation.swarm.crash(index)
            if fault.kind == "power":
                disk.lose_power(random.Random(f"power {fault.time} {index}"))
            elif fault.kind == "rollback":
                disk.return_to(_image(fault))
            else:
                disk.rot(fault.amount)
        elif fault.kind == "full":
            self._full[index] += 1
            disk.full = True
        elif fault.kind == "slow disk":
            self._slow[index] += round(1000 * fault.amount)
            self._set_slowness(index)
        elif fault.kind == "clock":
            self._jump(index, fault.amount)
        elif fault.kind == "freeze":
            self._stand_still(index)
        else:  # it dies at a step or an operation to come
            self._restarts[index] = min(fault.seconds, 60.0)
            if fault.kind == "step":
                _loop().at_step(index, int(fault.amount), lambda: self.die(index))
            elif process is not None:
                process.disk.dies_in = int(fault.amount)
            else:
                self._doomed[index] = int(fault.amount)

    def end(self, fault: Fault) -> None:
        """End a fault after its time."""
        for index in fault.peers:
            if index < len(self._simulation.disks):
                self._end(fault, index)

    def _end(self, fault: Fault, index: int) -> None:
        simulation = self._simulation
        if fault.kind in VANISHING:
            simulation.swarm.restart(index)
        elif fault.kind == "full":
            self._full[index] -= 1
            simulation.disks[index].full = self._full[index] > 0
        elif fault.kind == "slow disk":
            self._slow[index] -= round(1000 * fault.amount)
            self._set_slowness(index)
        elif fault.kind == "clock":
            self._jump(index, -fault.amount)
        elif fault.kind == "freeze":
            self._go_on(index)
        elif index in simulation.processes and index in self._restarts:  # it did not come to that step or operation
            del self._restarts[index]
            self._doomed.pop(index, None)
            simulation.processes[index].disk.dies_in = 0
            _loop().forget_steps(index)

    # ---- processes ----

    def started(self, index: int) -> None:
        """A process has started on a machine whose faults go on."""
        self._set_slowness(index)
        self._simulation.processes[index].disk.dies_in = self._doomed.pop(index, 0)

    def ended(self, index: int) -> None:
        """A process is gone, and with it what held it up."""
        self._frozen.pop(index, None)
        _loop().forget_process(index)

    def die(self, index: int) -> None:
        """End a process now, and start it again after the fault's time."""
        simulation, seconds = self._simulation, self._restarts.pop(index, 1.0)
        simulation.swarm.crash(index)
        if seconds != inf:
            _loop().call_later(seconds, simulation.swarm.restart, index, context=self._context)

    def freeze(self, index: int, seconds: Seconds) -> None:
        """Let a process stand still for a time, because it waits for its disk."""
        if index in self._simulation.processes:
            self._stand_still(index)
            process = self._simulation.processes[index]
            _loop().call_later(seconds, self._waited, index, process, context=self._context)

    def _waited(self, index: int, process: object) -> None:
        if self._simulation.processes.get(index) is process:
            self._go_on(index)

    def _stand_still(self, index: int) -> None:
        if index in self._simulation.processes:
            self._frozen[index] += 1
            _loop().freeze(index)

    def _go_on(self, index: int) -> None:
        if self._frozen[index] > 0:
            self._frozen[index] -= 1
            if not self._frozen[index]:
                _loop().thaw(index)

    def _set_slowness(self, index: int) -> None:
        process = self._simulation.processes.get(index)
        if process is not None:
            process.disk.slowness = self._slow[index] / 1000

    def _jump(self, index: int, seconds: Seconds) -> None:
        self._simulation.skews[index] += seconds
        process = self._simulation.processes.get(index)
        if process is not None:
            process.clock.skew = self._simulation.skews[index]


def _image(fault: Fault) -> Seconds:
    """Under what an image is kept for a fault."""
    return fault.time


def _loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop
