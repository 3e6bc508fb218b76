"""Runs the nodes of a scenario: starts them, crashes and restarts them, samples what they see, lets them leave."""

from __future__ import annotations

import asyncio
import random
from contextvars import copy_context

from ..config.options import Options
from ..network.sim import Fault, SimSwarm
from ..network.sim.virtual_time import PROCESS
from ..node.joining import repair_saved
from ..node.node import Node
from ..runtime.seams import Memo, Seams, inline
from ..wire.addresses import Address
from ..wire.errors import LocalProblem, P2pnodeError
from ..wire.status import NodeEvent, NodeStatus
from ..wire.types import Seconds
from .compute import SimCompute
from .disk import ProcessDisk, SimDisk
from .machine_faults import MachineFaults
from .process import Process, SimClock
from .recording import NOWHERE, Recording
from .result import NodeSummary, PeerCount, SimResult
from .scenario import Scenario, identity_of
from .watching import LOOK_EVERY, OnProgress, Watch, ignore

FOUNDER = 0
LEAVE_LIMIT: Seconds = 30.0


class Simulation:
    """Runs the nodes of a scenario (network.sim.Runner): starts them, crashes and restarts them, watches them."""

    def __init__(self, scenario: Scenario, recording: Recording = NOWHERE, on_progress: OnProgress = ignore) -> None:
        self.scenario = scenario
        self.watch = None if scenario.training is None else Watch(self, scenario.training, recording, on_progress)
        self.swarm = SimSwarm(scenario.seed, scenario.links, scenario.keep_trace, runner=self)
        self.identities = [identity_of(scenario.seed, index) for index in range(scenario.peers)]
        self.processes: dict[int, Process] = {}
        self.ended: dict[int, P2pnodeError] = {}
        self.starts = [0] * scenario.peers
        self._memo = Memo()
        self.disks = [SimDisk() for _ in self.identities]
        self.skews = [scenario.skew.get(index, 0.0) for index in range(scenario.peers)]
        self._machine_faults = MachineFaults(self)
        self._peer_counts: list[PeerCount] = []
        self._complaints: list[str] = []
        self._complained: dict[int, P2pnodeError] = {}  # why nodes ended that start again
        self._context = copy_context()
        self._resting = False
        self._bugs: list[Exception] = []
        self._dying: dict[asyncio.Task[None], None] = {}
        for identity in self.identities:
            self.swarm.add_host(identity.peer_id)

    async def run(self) -> SimResult:
        """The whole scenario; raises what a node raised that no node may raise."""
        await self.start()
        if self.watch is None:
            await self.go_on(self.scenario.seconds)
        else:
            await self.learn(self.watch, self.scenario.seconds)
        return await self.finish()

    async def start(self) -> None:
        """Set the nodes to start and the faults to happen at their times."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._complaints.append(repr(context)))
        rng = random.Random(f"starts {self.scenario.seed}")
        for index in range(self.scenario.peers):
            loop.call_later(rng.random() * self.scenario.spread if index != FOUNDER else 0.0, self.restart, index)
        self.swarm.schedule(self.scenario.faults)
        self._machine_faults.schedule(self.scenario.faults)

    async def go_on(self, seconds: Seconds) -> None:
        """Let virtual time pass, sampling what the nodes see."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(min(self.scenario.sample_every or seconds, end - loop.time()))
            if self.scenario.sample_every:
                self._sample(loop.time())
            if self._bugs:
                raise self._bugs[0]

    async def learn(self, watch: Watch, seconds: Seconds) -> None:
        """Let virtual time pass until all nodes have done their rounds, at most `seconds`, and collect their curves."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end and not watch.finished:
            await asyncio.sleep(LOOK_EVERY)
            watch.look(loop.time())
            if self._bugs:
                raise self._bugs[0]
            if FOUNDER in self.ended:
                raise self.ended[FOUNDER]

    def rest(self) -> None:
        """Let no node train from now on, not even one that restarts, so that the work done so far can spread."""
        self._resting = True
        for process in self.processes.values():
            if process.compute is not None:
                process.compute.rest()

    async def finish(self) -> SimResult:
        """Take the final view, then let everybody leave."""
        statuses = tuple(self._status(index) for index in range(self.scenario.peers))
        nodes = () if self.watch is None else self.watch.summaries()
        await self._leave()
        return self._result(statuses, nodes)

    def last_error(self, index: int) -> str:
        """Why a node ended by itself the last time, in words; "" where it never did."""
        return str(self.ended.get(index) or self._complained.get(index) or "")

    def _sample(self, now: Seconds) -> None:
        for index in sorted(self.processes):
            status = self.processes[index].node.status()
            present = sum(row.present for row in status.peers)
            self._peer_counts.append(PeerCount(now, status.name, status.condition, present))

    def _status(self, index: int) -> NodeStatus | None:
        return self.processes[index].node.status() if index in self.processes else None

    # ---- processes ----

    def restart(self, index: int) -> None:
        """Start a node, from its disk if it ran before."""
        if index not in self.processes:
            context = copy_context()
            context.run(PROCESS.set, index)
            context.run(self._start_process, index)

    def _start_process(self, index: int) -> None:
        scenario, identity = self.scenario, self.identities[index]
        self.starts[index] += 1
        disk = ProcessDisk(
            self.disks[index],
            die=lambda: self._machine_faults.die(index),
            delayed=lambda seconds: self._machine_faults.freeze(index, seconds),
        )
        speed = None if scenario.training is None else scenario.training.speed_of(scenario.seed, index)
        compute = None if speed is None else SimCompute(speed)
        if compute is not None and self._resting:
            compute.rest()
        rng = random.Random(f"node {scenario.seed} {index} {self.starts[index]}")
        clock = SimClock(self.skews[index])
        seams = Seams(clock, rng, disk, compute or inline, self._memo, speed=speed)
        network = self.swarm.network(identity.peer_id)
        try:
            repair_saved(disk, replaced=False)  # as node/place.py does
            node = Node(self._options(index), seams, network, identity)
        except LocalProblem as problem:  # a damaged file that only the user can replace
            network.stop("closed", "the node did not start")
            self._ended(index, problem)
            return
        node.on_event(lambda event: self._note(index, event))
        task = asyncio.get_running_loop().create_task(self._live(index, node), name=f"node {index}")
        self.processes[index] = Process(node, network, disk, clock, task, compute)
        self._machine_faults.started(index)

    def crash(self, index: int) -> None:
        process = self.processes.pop(index, None)
        if process is not None:
            process.disk.gone = True
            process.task.cancel()
            self._dying[process.task] = None
            process.task.add_done_callback(lambda task: self._dying.pop(task, None))
            self._machine_faults.ended(index)

    def begin(self, fault: Fault) -> None:
        self._machine_faults.begin(fault)

    def end(self, fault: Fault) -> None:
        self._machine_faults.end(fault)

    def _options(self, index: int) -> Options:
        bootstrap = () if index == FOUNDER else (self.address(FOUNDER),)
        return self.scenario.options_of(index, bootstrap, self.starts[index])

    def address(self, index: int) -> Address:
        """Where a node listens."""
        host = self.swarm.hosts[index]
        return Address(host.address, host.peer)

    async def _live(self, index: int, node: Node) -> None:
        try:
            await node.run()
        except P2pnodeError as error:
            self._ended(index, error)
        except Exception as bug:  # raised when the simulation ends, after the other nodes have ended
            self._bugs.append(bug)
        finally:
            current = self.processes.get(index)
            if current is not None and current.node is node:
                del self.processes[index]
                self._machine_faults.ended(index)

    def _ended(self, index: int, error: P2pnodeError) -> None:
        again = self.scenario.restart_after
        if again and isinstance(error, LocalProblem):
            self._complained[index] = error
            asyncio.get_running_loop().call_later(again, self._again, index, context=self._context)
        else:
            self.ended[index] = error

    def _again(self, index: int) -> None:
        """Start a node that ended by itself, unless its machine is off."""
        network = self.swarm.hosts[index].network
        if network is not None and network.health.state == "closed":
            self.restart(index)

    def _note(self, index: int, event: NodeEvent) -> None:
        now = asyncio.get_running_loop().time()
        self.swarm.trace.add(now, "note", index, -1, f"{event.kind}: {event.text}".encode())

    # ---- the end ----

    async def _leave(self) -> None:
        """Let all nodes leave; faults that are under way go on."""
        tasks = [*self._dying]
        for process in list(self.processes.values()):
            process.node.leave()
            tasks.append(process.task)
        if tasks:
            await asyncio.wait(tasks, timeout=LEAVE_LIMIT)
        await asyncio.sleep(1.0)  # what is on its way arrives

    def _result(self, statuses: tuple[NodeStatus | None, ...], nodes: tuple[NodeSummary, ...]) -> SimResult:
        trace = self.swarm.trace
        if self._bugs:
            raise self._bugs[0]
        return SimResult(
            scenario=self.scenario,
            digest=trace.digest(),
            virtual_seconds=asyncio.get_running_loop().time(),
            statuses=statuses,
            peer_counts=tuple(self._peer_counts),
            message_counts=dict(trace.counts),
            errors=dict(self.ended),
            left_over=tuple(self._left_over()),
            curves=() if self.watch is None else tuple(self.watch.curves.rows),
            pictures=() if self.watch is None else self.watch.pictures.all(),
            nodes=nodes,
            finished=self.watch is None or self.watch.finished,
        )

    def _left_over(self) -> list[str]:
        here = asyncio.current_task()
        tasks = sorted(task.get_name() for task in asyncio.all_tasks() if task is not here)
        streams = [f"stream {stream.caller.index} to {stream.server.index}" for stream in self.swarm.streams]
        busy = [
            f"node {host.index}: {host.network.under_way} under way"
            for host in self.swarm.hosts
            if host.network is not None and host.network.under_way
        ]
        return [*tasks, *streams, *busy, *self._complaints]
