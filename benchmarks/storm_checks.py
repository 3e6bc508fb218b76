"""What must hold in any simulated swarm, whatever went wrong: looked at all the time, and after a quiet phase.

A violation is a line that says what was seen. `SwarmChecks.look` is called again and again while faults happen;
`settled` once all are over, nobody trains and what was under way has arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from p2pnode.jobs.train.job import TrainJob
from p2pnode.merging.deltaset.chains import MAX_WAITING
from p2pnode.merging.deltaset.policy import MOST_KEPT
from p2pnode.merging.deltaset.set import DeltaSet
from p2pnode.simulate import Simulation
from p2pnode.wire.errors import P2pnodeError
from p2pnode.wire.status import MAIN_JOB

MOST_TASKS = 400  # of one node
MOST_UNDER_WAY = 300  # calls and streams of one node
MOST_TIMERS = 4_000  # of one node, those that were cancelled included
MOST_DISK = 64 << 20  # bytes of one node
MOST_BYTES = 2 << 20  # a second and node, over the whole time


class SwarmChecks:
    """The checks of one simulation that trains a delta set."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._shards: set[str] = set()  # that somebody ever held
        self._rounds: dict[int, int] = {}

    # ---- all the time ----

    def look(self) -> list[str]:
        """What is wrong now."""
        for _, job in self._jobs():
            self._shards.update(job.shard_driver.held())
        return [*self._unequal_weights(), *self._unbounded(), *self._excluded()]

    def _unequal_weights(self) -> Iterator[str]:
        """Equal digests mean equal weights, at every moment."""
        seen: dict[tuple[bytes, bytes], tuple[int, bytes]] = {}
        for index, deltas in self._sets():
            key, own = (deltas.rules.lineage, deltas.log.digest()), deltas.hash()
            other, theirs = seen.setdefault(key, (index, own))
            if theirs != own:
                yield f"nodes {other} and {index} have equal digests and different weights"

    def _excluded(self) -> Iterator[str]:
        """All authors here are honest: nobody may count as a fraud."""
        honest = {str(identity.peer_id): index for index, identity in enumerate(self._simulation.identities)}
        for index, deltas in self._sets():
            for chain in deltas.log.exclusions:
                yield f"node {index} excludes the honest author {honest.get(chain.peer)}"

    def _unbounded(self) -> Iterator[str]:
        simulation = self._simulation
        loop, peers = asyncio.get_running_loop(), simulation.scenario.peers
        tasks, timers = len(asyncio.all_tasks()), len(getattr(loop, "_timers", ()))
        if tasks > MOST_TASKS * peers:
            yield f"{tasks} tasks for {peers} nodes"
        if timers > MOST_TIMERS * peers:
            yield f"{timers} timers for {peers} nodes"
        for index, disk in enumerate(simulation.disks):
            if (used := disk.total()) > MOST_DISK:
                yield f"node {index} uses {used:,} bytes of disk"
            host = simulation.swarm.hosts[index]
            if host.network is not None and host.network.under_way > MOST_UNDER_WAY:
                yield f"node {index} has {host.network.under_way} calls under way"
            if host.sent_bytes > MOST_BYTES * (loop.time() + 60.0):
                yield f"node {index} sent {host.sent_bytes:,} bytes in {loop.time():.0f} s"
        for index, deltas in self._sets():
            log = deltas.log
            if log.waiting > MAX_WAITING:
                yield f"node {index} keeps {log.waiting} early entries"
            if len(list(log)) > MOST_KEPT * max(1, len(log.heads)):
                yield f"node {index} keeps {len(list(log))} entries"

    # ---- going on ----

    def begin_calm(self) -> None:
        """Begin the calm: nothing goes wrong any more, and all have to train again."""
        self._rounds = {index: job.train_progress.rounds for index, job in self._jobs()}

    def idle(self, least: int) -> list[str]:
        """Who has done fewer than `least` rounds since `begin_calm`."""
        now = {index: job.train_progress.rounds for index, job in self._jobs()}
        return [
            f"node {index} did {max(0, now.get(index, 0) - self._rounds.get(index, 0))} rounds after the last fault"
            for index in range(self._simulation.scenario.peers)
            if now.get(index, 0) - self._rounds.get(index, 0) < least
        ]

    def settled(self) -> list[str]:
        """What is wrong after a quiet phase: nobody missing, one digest, every shard there."""
        simulation = self._simulation
        missing = [index for index in range(simulation.scenario.peers) if index not in simulation.processes]
        wrong = [f"node {index} is not there: {simulation.last_error(index)}" for index in missing]
        for index, process in simulation.processes.items():
            if process.node.condition() != "connected":
                wrong.append(f"node {index} is {process.node.condition()}")
        digests = {deltas.log.digest().hex()[:8] for _, deltas in self._sets()}
        lineages = {deltas.rules.lineage for _, deltas in self._sets()}
        if len(digests) > len(lineages):
            wrong.append(f"{len(digests)} digests in {len(lineages)} circles after a quiet phase")
        return [*wrong, *self._lost_shards()]

    def _lost_shards(self) -> Iterator[str]:
        whole: set[str] = set()
        for _, job in self._jobs():
            for shard in job.shard_driver.held():
                try:
                    if job.shard_driver.read(shard):
                        whole.add(shard)
                except P2pnodeError:
                    continue
        for shard in sorted(self._shards - whole):
            yield f"shard {shard[:12]} is lost"

    # ---- nodes ----

    def _jobs(self) -> Iterator[tuple[int, TrainJob]]:
        for index in sorted(self._simulation.processes):
            job = self._simulation.processes[index].node.jobs.jobs.get(MAIN_JOB)
            if isinstance(job, TrainJob):
                yield index, job

    def _sets(self) -> Iterator[tuple[int, DeltaSet]]:
        for index, job in self._jobs():
            if job.policy.can.circles is not None:
                yield index, job.policy.can.circles.set
