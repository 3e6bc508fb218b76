"""Watches the nodes of a simulation: collects their curves and pictures, knows when all are done, summarises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..jobs.contract import Job, TrainsModel
from ..watch.graph import PeerGraph, edges, with_first_circle
from ..watch.history import PictureHistory
from ..watch.similarity import annealed, with_similarity
from ..wire.run import read_manifest
from ..wire.status import ShardRow, own_state
from ..wire.types import Seconds
from .recording import Recording
from .result import MB, CurveCollector, NodeSummary
from .scenario import EPOCH, SimTraining

if TYPE_CHECKING:
    from .simulation import Simulation

LOOK_EVERY: Seconds = 0.5  # below the length of a round

VIEWS = 120  # pictures of the whole swarm, over the usual length of a simulation
MAX_ROWS = 1_000_000  # in all of them: 250 MB; above, the older ones are thinned out
OnProgress = Callable[[float, Seconds], None]  # share of the rounds done by all, virtual time


def ignore(*_: object) -> None:
    """Nobody listens."""


class Watch:
    """Watches the training of one simulation."""

    def __init__(
        self, simulation: Simulation, training: SimTraining, recording: Recording, on_progress: OnProgress
    ) -> None:
        self.curves = CurveCollector()
        self.pictures = PictureHistory(max_rows=MAX_ROWS)
        self.finished = False  # all nodes that can have done their rounds
        self._simulation = simulation
        self._training = training
        self._recording = recording
        self._next_picture: Seconds = 0.0
        self._on_progress = on_progress

    def look(self, now: Seconds) -> None:
        """Take down what is new."""
        for index, name, job in self._jobs():
            host = self._simulation.swarm.hosts[index]
            row = self.curves.look(now, f"n{index}", name, job.status(), host)
            if row is not None:
                self._recording.round(row)
        if now >= self._next_picture:
            self._next_picture = now + self._training.usual_seconds / VIEWS
            self._take_picture(now)
        share = self._share_done(now)
        self.finished = share >= 1.0
        self._on_progress(share, now)

    def _take_picture(self, now: Seconds) -> None:
        """Take a picture of the whole swarm from what its nodes know about themselves."""
        by_node: dict[int, dict[str, Job]] = {}
        for index, name, job in self._jobs():
            by_node.setdefault(index, {})[name] = job
        nodes = [(self._simulation.processes[index].node, jobs) for index, jobs in by_node.items()]
        manifest = next((read_manifest(node.manifest) for node, _ in nodes if node.manifest), None)
        first = next(iter(self._training.trained), "")
        fingerprints = {node.peer_id: jobs[first].announcement().fingerprint for node, jobs in nodes if first in jobs}
        statuses = [{name: job.status() for name, job in jobs.items()} for _, jobs in nodes]
        peers = with_first_circle(
            own_state(node.peer_id, node.name, node.role, found)
            for (node, _), found in zip(nodes, statuses, strict=True)
        )
        reported = {name: status for name, status in (statuses[0] if statuses else {}).items() if status.tables}
        rows = [row for _, jobs in nodes for job in jobs.values() for row in job.exchanges()]
        reason, shards = f"{len(peers)} nodes", self._shards()
        graph = PeerGraph(
            now, "", "simulation", "connected", reason, peers, edges(rows), reported, shards=shards, manifest=manifest
        )
        known = {str(peer): fingerprint for peer, fingerprint in fingerprints.items() if fingerprint}
        graph = with_similarity(graph, known, annealed(manifest, now + EPOCH))
        self.pictures.add(graph)
        self._recording.view(graph)

    def _shards(self) -> tuple[ShardRow, ...]:
        """Every shard that may travel, once, as its holder knows it."""
        if not self._training.options.share_data:
            return ()
        known: dict[str, ShardRow] = {}
        for index, _, job in self._jobs():
            for row in job.shard_rows():
                if row.id not in known or row.holder == self._simulation.processes[index].node.peer_id:
                    known[row.id] = row
        return tuple(known[shard] for shard in sorted(known))

    def _share_done(self, now: Seconds) -> float:
        simulation, rounds = self._simulation, self._training.rounds
        gone = {
            index
            for fault in simulation.scenario.faults
            if fault.kind == "crash" and fault.seconds == inf and fault.time <= now
            for index in fault.peers
        }
        names = self._training.trained or self._training.names  # where nothing is trained, all must end
        awaited = (simulation.scenario.peers - len(gone | set(simulation.ended))) * len(names)
        done = [
            min(rounds, job.status().state.training.round or 0)
            for index, name, job in self._jobs()
            if name in self._training.trained and not self._over(index, name)
        ]
        over = sum(name in names for process in simulation.processes.values() for name in process.node.jobs.ended)
        return (sum(done) + over * rounds) / max(1, awaited * rounds)

    def _over(self, index: int, name: str) -> bool:
        """Whether a job has ended at a node: nothing more comes of it there."""
        return name in self._simulation.processes[index].node.jobs.ended

    def _jobs(self) -> Iterator[tuple[int, str, Job]]:
        """The jobs that are prepared, by node and name."""
        for index in sorted(self._simulation.processes):
            for name, job in self._simulation.processes[index].node.jobs.jobs.items():
                yield index, name, job

    def summaries(self) -> tuple[NodeSummary, ...]:
        """Every training job of every running node at the end; some, evenly chosen, are trained alone as well."""
        jobs = [(index, job, job.model) for index, _, job in self._jobs() if job.model is not None]
        alone = self._training.alone
        compared = {round(place * len(jobs) / alone) for place in range(alone)} if alone else set()
        return tuple(
            self._summary(index, job, model, place in compared or alone >= len(jobs))
            for place, (index, job, model) in enumerate(jobs)
        )

    def _summary(self, index: int, job: Job, model: TrainsModel, compare: bool) -> NodeSummary:
        simulation, evaluation, status = self._simulation, model.evaluate(), job.status()
        host = simulation.swarm.hosts[index]
        state = replace(status.state, train=replace(status.state.training, accuracy=evaluation.accuracy))
        return NodeSummary(
            node=f"n{index}",
            status=replace(status, state=state, train=replace(status.training, test_loss=evaluation.loss)),
            alone=model.evaluate_alone(simulation.scenario.seed).accuracy if compare else None,
            mb_received=host.received_bytes / MB,
            mb_sent=host.sent_bytes / MB,
            starts=simulation.starts[index],
            job=job.name,
        )
