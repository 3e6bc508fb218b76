"""Watches the nodes of a simulation: collects their curves and pictures, knows when all are done, summarises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

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
from ..config.options import TrainOptions
from ..jobs.train.job import TrainJob
from ..jobs.train.prepare import fixed_rows
from ..training.host import ModelHost
from ..training.trainer import Trainer


def accuracy_alone(model_host: ModelHost, options: TrainOptions, steps: int, seed: int) -> float | None:
    """Accuracy on the task's test data after training on one node's part only."""
    assert options.split is not None
    assert options.part is not None
    trainer = Trainer(model_host, fixed_rows(model_host, options.split, options.part), seed)
    weights = trainer.steps(model_host.genesis, steps).weights
    return trainer.evaluate(weights).accuracy


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
        by_node: dict[int, dict[str, TrainJob]] = {}
        for index, name, job in self._jobs():
            by_node.setdefault(index, {})[name] = job
        nodes = [(self._simulation.processes[index].node, jobs) for index, jobs in by_node.items()]
        manifest = next((read_manifest(node.manifest) for node, _ in nodes if node.manifest), None)
        first = self._training.names[0]
        fingerprints = {node.peer_id: jobs[first].similarity.fingerprint for node, jobs in nodes if first in jobs}
        peers = with_first_circle(
            own_state(node.peer_id, node.name, node.role, {name: job.status() for name, job in jobs.items()})
            for node, jobs in nodes
        )
        rows = [row for _, jobs in nodes for job in jobs.values() for row in job.exchanges()]
        reason, shards = f"{len(peers)} nodes", self._shards(now)
        graph = PeerGraph(
            now, "", "simulation", "connected", reason, peers, edges(rows), shards=shards, manifest=manifest
        )
        known = {str(peer): fingerprint for peer, fingerprint in fingerprints.items() if fingerprint}
        graph = with_similarity(graph, known, annealed(manifest, now + EPOCH))
        self.pictures.add(graph)
        self._recording.view(graph)

    def _shards(self, now: Seconds) -> tuple[ShardRow, ...]:
        """Every shard that may travel, once, as its holder knows it."""
        if not self._training.options.share_data:
            return ()
        known: dict[str, ShardRow] = {}
        for _, _, job in self._jobs():
            for row in job.shards.all(now):
                if row.id not in known or row.holder == job.train_progress.me:
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
        awaited = (simulation.scenario.peers - len(gone | set(simulation.ended))) * len(self._training.names)
        done = [
            min(rounds, job.train_progress.rounds) for index, name, job in self._jobs() if not self._over(index, name)
        ]
        over = sum(len(process.node.jobs.ended) for process in simulation.processes.values())
        return (sum(done) + over * rounds) / max(1, awaited * rounds)

    def _over(self, index: int, name: str) -> bool:
        """Whether a job has ended at a node: nothing more comes of it there."""
        return name in self._simulation.processes[index].node.jobs.ended

    def _jobs(self) -> Iterator[tuple[int, str, TrainJob]]:
        """The jobs that are prepared, by node and name."""
        for index in sorted(self._simulation.processes):
            for name, job in self._simulation.processes[index].node.jobs.jobs.items():
                if isinstance(job, TrainJob):
                    yield index, name, job

    def summaries(self) -> tuple[NodeSummary, ...]:
        """Every job of every running node at the end; some of them, evenly chosen, are trained alone as well."""
        jobs, alone = list(self._jobs()), self._training.alone
        compared = {round(place * len(jobs) / alone) for place in range(alone)} if alone else set()
        return tuple(
            self._summary(index, name, job, place in compared or alone >= len(jobs))
            for place, (index, name, job) in enumerate(jobs)
        )

    def _summary(self, index: int, name: str, job: TrainJob, compare: bool) -> NodeSummary:
        simulation, evaluation, status = self._simulation, job.evaluate(), job.status()
        host = simulation.swarm.hosts[index]
        state = replace(status.state, train=replace(status.state.training, accuracy=evaluation.accuracy))
        return NodeSummary(
            node=f"n{index}",
            status=replace(status, state=state, train=replace(status.training, test_loss=evaluation.loss)),
            alone=self._alone(index, job) if compare else None,
            mb_received=host.received_bytes / MB,
            mb_sent=host.sent_bytes / MB,
            starts=simulation.starts[index],
            job=name,
        )

    def _alone(self, index: int, job: TrainJob) -> float | None:
        scenario = self._simulation.scenario
        options = self._training.options_of(index, scenario.peers, scenario.seed)
        return accuracy_alone(job.model_host, options, job.trainer.steps_done, scenario.seed)
