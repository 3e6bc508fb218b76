"""A whole swarm in one process, on virtual time: the unmodified node over a simulated network, clock and disk.

    result = simulate(peers=16, seed=7, seconds=300, loss=0.05, churn=0.2)
    result.rows()        # who saw how many peers when, for a plot
    result.digest        # equal for equal arguments, in every process

Everything is drawn from `seed`; a failing seed can be run again, and its faults shrunk (network.sim.shrink).
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from .addresses import Address
from .errors import P2pnodeError
from .ids import Identity, sha256
from .network.base import Seconds
from .network.sim import Fault, Links, SimNetwork, SimSwarm, churn_faults
from .network.virtual import run_virtual
from .node.node import Node, NodeSettings
from .node.status import Event, Status
from .node.world import World, inline
from .store.storage import MemoryStorage

EPOCH = 1_800_000_000.0  # what a right clock shows at virtual time 0
FOUNDER = 0
LEAVE_LIMIT: Seconds = 30.0

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What is simulated. Node 0 founds the run; the others get its address, and start within `spread` seconds."""

    peers: int = 16
    seed: int = 0
    seconds: Seconds = 120.0
    links: Links = field(default_factory=Links)
    faults: tuple[Fault, ...] = ()
    skew: Mapping[int, Seconds] = field(default_factory=dict)  # by how much each node's clock is wrong
    spread: Seconds = 10.0
    sample_every: Seconds = 10.0  # 0: never
    keep_trace: int = 0
    settings: Callable[[NodeSettings, int, int], NodeSettings] = lambda usual, index, starts: usual


class Sample(NamedTuple):
    """What one node saw at one time."""

    time: Seconds
    node: str
    condition: str
    sees: int


@dataclass(frozen=True)
class SimResult:
    """What came of it. `statuses` are final, None for a node that was down; `ended` has those that gave up, and why."""

    digest: str
    seconds: Seconds
    statuses: tuple[Status | None, ...]
    samples: tuple[Sample, ...]
    messages: Mapping[str, int]
    message_bytes: Mapping[str, int]
    ended: Mapping[int, P2pnodeError]
    left_over: tuple[str, ...]  # tasks, operations and complaints that should not be there when all have left

    def rows(self) -> list[dict[str, float | str | int]]:
        """The samples, as a table for a notebook."""
        return [sample._asdict() for sample in self.samples]

    def sees(self, index: int) -> frozenset[str]:
        """The ids of the peers that this node counts as present at the end."""
        status = self.statuses[index]
        return frozenset(row.id for row in status.peers if row.present) if status is not None else frozenset()

    def blind_spots(self) -> list[tuple[int, int]]:
        """Pairs of running nodes (a, b) where a does not see b; none when everybody sees everybody."""
        ids = [(index, status.id) for index, status in enumerate(self.statuses) if status is not None]
        seen = {index: self.sees(index) for index, _ in ids}
        return [(a, b) for a, _ in ids for b, id in ids if a != b and id not in seen[a]]


def simulate(
    peers: int = 16,
    *,
    seed: int = 0,
    seconds: Seconds = 120.0,
    latency: Seconds = 0.05,
    loss: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    churn: float = 0.0,
    faults: Iterable[Fault] = (),
    skew: Mapping[int, Seconds] | None = None,
) -> SimResult:
    """Run a swarm for so many virtual seconds. `churn` is the share of nodes that crash and come back on the way."""
    links = Links(latency, 0.4 * latency, loss=loss, duplicate=duplicate, reorder=reorder)
    rng = random.Random(f"churn {seed}")
    drawn = churn_faults(rng, range(1, peers), churn, 0.2 * seconds, 0.4 * seconds)
    plan = Plan(peers, seed, seconds, links, (*faults, *drawn), skew or {})
    return run_plan(plan)


def run_plan(plan: Plan) -> SimResult:
    return run_sim(Simulation(plan).run())


def run_sim(main: Coroutine[Any, Any, T]) -> T:
    """Run in virtual time. Garbage is collected rarely: thousands of live records make a collection slow."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        return run_virtual(main)
    finally:
        gc.set_threshold(*thresholds)


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
    """A disk as one process sees it: what it writes after its crash is not written."""

    def __init__(self, disk: MemoryStorage) -> None:
        self._disk = disk
        self.gone = False

    def read(self, name: str) -> bytes | None:
        return self._disk.read(name)

    def write(self, name: str, data: bytes) -> None:
        if not self.gone:
            self._disk.write(name, data)

    def delete(self, name: str) -> None:
        if not self.gone:
            self._disk.delete(name)


@dataclass
class Process:
    """A running node."""

    node: Node
    network: SimNetwork
    disk: ProcessDisk
    task: asyncio.Task[None]


class Simulation:
    """Runs the nodes of a plan (network.sim.Runner): starts them, crashes and restarts them, watches them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.swarm = SimSwarm(plan.seed, plan.links, plan.keep_trace)
        self.swarm.runner = self
        self.identities = [identity_of(plan.seed, index) for index in range(plan.peers)]
        self.processes: dict[int, Process] = {}
        self.ended: dict[int, P2pnodeError] = {}
        self._disks = [MemoryStorage() for _ in self.identities]
        self._starts = [0] * plan.peers
        self._samples: list[Sample] = []
        self._complaints: list[str] = []
        self._bugs: list[Exception] = []
        self._dying: dict[asyncio.Task[None], None] = {}
        for identity in self.identities:
            self.swarm.add_host(identity.peer_id)

    async def run(self) -> SimResult:
        """The whole plan; raises what a node raised that no node may raise."""
        await self.start()
        await self.go_on(self.plan.seconds)
        return await self.finish()

    async def start(self) -> None:
        """Set the nodes to start and the faults to happen at their times."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: self._complaints.append(repr(context)))
        rng = random.Random(f"starts {self.plan.seed}")
        for index in range(self.plan.peers):
            loop.call_later(rng.random() * self.plan.spread if index != FOUNDER else 0.0, self.restart, index)
        self.swarm.schedule(self.plan.faults)

    async def go_on(self, seconds: Seconds) -> None:
        """Let virtual time pass, sampling what the nodes see."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(min(self.plan.sample_every or seconds, end - loop.time()))
            if self.plan.sample_every:
                self._sample(loop.time())
            if self._bugs:
                raise self._bugs[0]

    async def finish(self) -> SimResult:
        """Take the final view, then let everybody leave."""
        statuses = tuple(self._status(index) for index in range(self.plan.peers))
        await self._leave()
        return self._result(statuses)

    def _sample(self, now: Seconds) -> None:
        for index in sorted(self.processes):
            status = self.processes[index].node.status()
            sees = sum(row.present for row in status.peers)
            self._samples.append(Sample(now, status.name, status.condition, sees))

    def _status(self, index: int) -> Status | None:
        return self.processes[index].node.status() if index in self.processes else None

    # ---- processes ----

    def restart(self, index: int) -> None:
        """Start a node, from its disk if it ran before."""
        if index in self.processes:
            return
        plan, identity = self.plan, self.identities[index]
        self._starts[index] += 1
        disk = ProcessDisk(self._disks[index])
        rng = random.Random(f"node {plan.seed} {index} {self._starts[index]}")
        world = World(SimClock(plan.skew.get(index, 0.0)), rng, disk, inline)
        network = self.swarm.network(identity.peer_id)
        node = Node(self._settings(index), world, network, identity)
        node.on_event(lambda event: self._note(index, event))
        task = asyncio.get_running_loop().create_task(self._live(index, node), name=f"node {index}")
        self.processes[index] = Process(node, network, disk, task)

    def crash(self, index: int) -> None:
        process = self.processes.pop(index, None)
        if process is not None:
            process.disk.gone = True
            process.task.cancel()
            self._dying[process.task] = None

    def _settings(self, index: int) -> NodeSettings:
        founder = self.identities[FOUNDER].peer_id
        bootstrap = () if index == FOUNDER else (self.address(FOUNDER),)
        usual = NodeSettings(name=f"n{index}", bootstrap=bootstrap, run_name=f"sim {founder[-4:]}")
        return self.plan.settings(usual, index, self._starts[index])

    def address(self, index: int) -> Address:
        """Where a node listens."""
        host = self.swarm.hosts[index]
        return Address(host.address, host.peer)

    async def _live(self, index: int, node: Node) -> None:
        try:
            await node.run()
        except P2pnodeError as error:
            self.ended[index] = error
        except Exception as bug:
            self._bugs.append(bug)
        finally:
            current = self.processes.get(index)
            if current is not None and current.node is node:
                del self.processes[index]

    def _note(self, index: int, event: Event) -> None:
        now = asyncio.get_running_loop().time()
        self.swarm.trace.add(now, "note", index, -1, f"{event.kind}: {event.text}".encode())

    # ---- the end ----

    async def _leave(self) -> None:
        """Everybody leaves; faults still under way stay as they are."""
        tasks = [*self._dying]
        for process in list(self.processes.values()):
            process.node.leave()
            tasks.append(process.task)
        if tasks:
            await asyncio.wait(tasks, timeout=LEAVE_LIMIT)
        await asyncio.sleep(1.0)  # what is on its way arrives

    def _result(self, statuses: tuple[Status | None, ...]) -> SimResult:
        trace = self.swarm.trace
        if self._bugs:
            raise self._bugs[0]
        return SimResult(
            digest=trace.digest(),
            seconds=asyncio.get_running_loop().time(),
            statuses=statuses,
            samples=tuple(self._samples),
            messages=dict(trace.counts),
            message_bytes=dict(trace.bytes),
            ended=dict(self.ended),
            left_over=tuple(self._left_over()),
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


def identity_of(seed: int, index: int) -> Identity:
    """The identity of a node of a simulated swarm."""
    return Identity(sha256(f"p2pnode simulation {seed} node {index}".encode()))
