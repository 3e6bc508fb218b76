"""Watches the nodes of a simulation learn: collects their curves, knows when all are done, sums up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..watch.graph import PeerGraph, edges, with_first_circle
from ..watch.history import PictureHistory
from ..watch.similarity import annealed, with_similarity
from ..wire.run import read_manifest
from ..wire.status import MAIN_JOB, ShardRow, own_state
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
    """The learning of one simulation."""

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
        for index, learning in self._learning():
            host = self._simulation.swarm.hosts[index]
            row = self.curves.look(now, f"n{index}", MAIN_JOB, learning.status(), host)
            if row is not None:
                self._recording.round(row)
        if now >= self._next_picture:
            self._next_picture = now + self._training.usual_seconds / VIEWS
            self._take_picture(now)
        share = self._share_done(now)
        self.finished = share >= 1.0
        self._on_progress(share, now)

    def _take_picture(self, now: Seconds) -> None:
        """The whole swarm as its nodes know it themselves: nobody needs to ask anybody."""
        nodes = [(self._simulation.processes[index].node, learning) for index, learning in self._learning()]
        manifest = next((read_manifest(node.manifest) for node, _ in nodes if node.manifest), None)
        fingerprints: dict[str, bytes] = {node.peer_id: learning.similarity.fingerprint for node, learning in nodes}
        peers = with_first_circle(
            own_state(node.peer_id, node.name, node.role, {MAIN_JOB: learning.status()}) for node, learning in nodes
        )
        rows = [row for _, learning in nodes for row in learning.train_progress.partners.values()]
        reason, shards = f"{len(peers)} nodes", self._shards(now)
        graph = PeerGraph(
            now, "", "simulation", "connected", reason, peers, edges(rows), shards=shards, manifest=manifest
        )
        known = {peer: fingerprint for peer, fingerprint in fingerprints.items() if fingerprint}
        graph = with_similarity(graph, known, annealed(manifest, now + EPOCH))
        self.pictures.add(graph)
        self._recording.view(graph)

    def _shards(self, now: Seconds) -> tuple[ShardRow, ...]:
        """Every shard that may travel, once, as its holder knows it."""
        if not self._training.options.share_data:
            return ()
        known: dict[str, ShardRow] = {}
        for _, learning in self._learning():
            for row in learning.shards.all(now):
                if row.id not in known or row.holder == learning.train_progress.me:
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
        awaited = simulation.scenario.peers - len(gone | set(simulation.ended))
        done = [min(rounds, learning.train_progress.rounds) for _, learning in self._learning()]
        return sum(done) / max(1, awaited * rounds)

    def _learning(self) -> Iterator[tuple[int, TrainJob]]:
        for index in sorted(self._simulation.processes):
            job = self._simulation.processes[index].node.jobs.jobs.get(MAIN_JOB)
            if isinstance(job, TrainJob):
                yield index, job

    def summaries(self) -> tuple[NodeSummary, ...]:
        """Every running node at the end; some of them, evenly chosen, are trained alone as well."""
        learning, alone = list(self._learning()), self._training.alone
        compared = {round(place * len(learning) / alone) for place in range(alone)} if alone else set()
        return tuple(
            self._summary(index, one, place in compared or alone >= len(learning))
            for place, (index, one) in enumerate(learning)
        )

    def _summary(self, index: int, learning: TrainJob, compare: bool) -> NodeSummary:
        simulation, evaluation, status = self._simulation, learning.evaluate(), learning.status()
        host, state = simulation.swarm.hosts[index], replace(status.state, accuracy=evaluation.accuracy)
        return NodeSummary(
            node=f"n{index}",
            status=replace(status, state=state, test_loss=evaluation.loss),
            alone=self._alone(index, learning) if compare else None,
            mb_received=host.received_bytes / MB,
            mb_sent=host.sent_bytes / MB,
            starts=simulation.starts[index],
        )

    def _alone(self, index: int, learning: TrainJob) -> float | None:
        scenario = self._simulation.scenario
        options = self._training.options_of(index, scenario.peers, scenario.seed)
        return accuracy_alone(learning.model_host, options, learning.trainer.steps_done, scenario.seed)
