"""Learning in a run: rounds of local steps and, beside them, exchanges with partners. Neither waits for the other.

train     K local steps → record → publish (journal on disk first) → merge → again
exchange  after each round, three partners: ask, take, push
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import Diverged, LocalProblem, NetworkDown, PeerError, PeerMisbehaved, PeerRefused
from ..ids import PeerId
from ..merge.policy import Arrays, Facts, Merged, Policy
from ..messages import Exchange, Exchanged, GetSnapshot, encode
from ..network.base import MemorySink, Payload, Seconds, StreamLimits
from ..rounds import lam_for, local_steps
from ..run import RunAccess
from ..shards.shard import Shard, cut, indices_of
from ..shards.share import claimed
from ..store.progress import Progress
from ..task import Evaluation
from ..weights import Floats
from .bench import Bench
from .parts import Parts
from .status import LearningStatus
from .trainer import Trainer, TrainResult

MODEL = "main"  # logs and stores are keyed by model: a node may later train several
PARTNERS = 3
CIRCLE = 16
EXCHANGE_TIMEOUT: Seconds = 10.0
EXCHANGE_PERIOD: Seconds = 5.0
EVALUATE_EVERY: Seconds = 5.0
SAVE_EVERY: Seconds = 10.0
FIRST_STEPS = 5.0  # mean local steps of a round while the speed is not known
SNAPSHOT_OVERHEAD = 64 << 20


@dataclass
class Standings:
    """What has been reached, for the views."""

    rounds: int = 0
    loss: float | None = None
    evaluation: Evaluation | None = None
    update_norm: float = 0.0
    merged: str = ""
    exchanges: int = 0
    entries: int = 0
    problems: int = 0


class Learning:
    """One model of one run at one node."""

    def __init__(
        self,
        parts: Parts,
        access: RunAccess,
        bench: Bench,
        policy: Policy,
        round_seconds: Seconds,
        max_steps: int,
        rows: NDArray[np.int64] | None = None,
        circle: str = "",
    ) -> None:
        self.policy = policy
        self.bench = bench
        self.standings = Standings()
        seed, speed = parts.world.rng.getrandbits(31), parts.world.speed
        self.trainer = Trainer(bench, np.empty(0, np.int64), seed, declared_speed=speed)
        self._parts = parts
        self._access = access
        self._round_seconds = round_seconds
        self._max_steps = max_steps
        self._fixed_rows = rows
        self._circle_name = circle
        self._shards: list[Shard] = []
        self._progress = Progress(parts.world.storage, f"runs/{access.run}/{MODEL}")
        self._exchange_now = asyncio.Event()
        self._evaluated_at = self._saved_at = parts.world.clock.monotonic()

    # ---- life ----

    async def resume(self) -> bool:
        """Go on from what was saved; False when there is nothing."""
        return bool(await self._parts.world.compute(self._resume))

    def _resume(self) -> bool:
        saved = self._progress.load()
        if self._progress.damaged:
            self._parts.events.say("state", "the newest saved progress was damaged; going on from before", warning=True)
        if saved is None:
            return False
        arrays, journal = saved
        try:
            self.policy.restore(arrays, journal)
            self.trainer.restore({name.removeprefix("trainer/"): arrays[name] for name in arrays if "trainer/" in name})
            self.standings.rounds = int(arrays["rounds"][0])
        except (ValueError, KeyError) as error:
            self._parts.events.say("state", f"the saved progress does not fit ({error}); starting anew", warning=True)
            return False
        return True

    async def adopt_from(self, peers: list[PeerId]) -> bool:
        """Start where the first member that can say is; False when none can."""
        limits = StreamLimits(max_bytes=8 * self.bench.layout.size + SNAPSHOT_OVERHEAD)
        for peer in peers:
            proof = self._access.proof(self._parts.identity.peer_id, peer)
            sink = MemorySink()
            try:
                request = encode(GetSnapshot(self._access.tag, MODEL, proof))
                await self._parts.network.fetch(peer, request, sink, limits)
                content = sink.content()
                await self._parts.world.compute(lambda content=content: self.policy.adopt(content))  # type: ignore[misc]
            except (PeerError, NetworkDown):
                continue
            except ValueError as error:
                self._parts.standing.fault(peer, f"snapshot: {error}", self._parts.world.clock.monotonic())
                continue
            return True
        return False

    async def keep(self) -> None:
        """Train and exchange until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_training())
            group.create_task(self._keep_exchanging())

    async def save(self) -> None:
        """Put everything on disk; a full disk costs the saving, not the training."""
        try:
            await self._parts.world.compute(lambda: self._progress.save(self._state()))
            self._saved_at = self._parts.world.clock.monotonic()
        except LocalProblem as problem:
            self.standings.problems += 1
            self._parts.events.say("disk", f"progress was not saved: {problem}", warning=True)

    def _state(self) -> Arrays:
        trainer = {f"trainer/{name}": array for name, array in self.trainer.state().items()}
        return {**self.policy.state(), **trainer, "rounds": np.array([self.standings.rounds], np.int64)}

    # ---- training ----

    async def _keep_training(self) -> None:
        while True:
            await self._parts.world.compute(self._choose_rows)
            if not self.trainer.samples:
                await asyncio.sleep(self._round_seconds)  # others hold all shards; one falls to us when they leave
                continue
            try:
                await self._round()
            except Diverged as problem:
                self.standings.problems += 1
                self._parts.events.say("diverged", f"{problem}; going on from the last good weights", warning=True)
            await self._now_and_then()

    async def _round(self) -> None:
        world = self._parts.world
        lam = lam_for(self.trainer.speed, self._round_seconds, self._max_steps) if self.trainer.speed else FIRST_STEPS
        steps = local_steps(lam, world.rng, self._max_steps)
        peers = len(self._circle()) + 1

        def train() -> tuple[Floats, TrainResult]:
            begun = self.policy.start()
            return begun, self.trainer.steps(begun, steps, at=self.trainer.steps_done)

        begun, result = await world.compute(train, steps)
        facts = Facts(result.steps, result.loss, result.samples, peers)
        # By itself: a simulation computes steps at their beginning, and this must know what came in meanwhile.
        self._publish(await world.compute(lambda: self.policy.record(begun, result.weights, facts)))
        self._note(result.loss, await world.compute(self.policy.merge))
        self._exchange_now.set()

    def _publish(self, draft: object) -> None:
        """Journal first: nobody may hear what this node could deny after a crash."""
        journal = self.policy.publish(draft)
        if journal:
            self._progress.note(journal)

    def _note(self, loss: float, merged: Merged) -> None:
        standings = self.standings
        standings.rounds += 1
        standings.loss = loss
        standings.update_norm = merged.update_norm
        standings.merged = merged.why
        standings.entries += merged.entries

    def _choose_rows(self) -> None:
        """This node's share of the data: its shards by rendezvous hashing among those present, unless it is fixed."""
        if self._fixed_rows is not None:
            self.trainer.use(self._fixed_rows)
            return
        if not self._shards:
            columns = {name: column.numpy() for name, column in self.bench.data.items()}
            self._shards = cut(columns, self.bench_seed)
        me = self._parts.identity.peer_id
        own = claimed(self._shards, [me, *self._circle()], me)
        self.trainer.use(indices_of(own))

    @property
    def bench_seed(self) -> int:
        return int(self.bench.layout.hash[:8], 16)

    async def _now_and_then(self) -> None:
        now = self._parts.world.clock.monotonic()
        if now - self._evaluated_at >= EVALUATE_EVERY or self.standings.evaluation is None:
            self._evaluated_at = now
            self.standings.evaluation = await self._parts.world.compute(self.evaluate)
        if now - self._saved_at >= SAVE_EVERY:
            await self.save()

    def evaluate(self) -> Evaluation:
        """How good the read-out is on the task's test data. Heavy."""
        return self.trainer.evaluate(self.policy.readout())

    # ---- exchange ----

    def members(self) -> list[PeerId]:
        """Peers of the same circle that are there; of the whole run when no circle is declared."""
        present = self._parts.table.present(self._access.tag)
        words = [(peer.id, peer.announcement) for peer in present]
        return [peer for peer, word in words if word.role == "node" and word.circle == self._circle_name]

    def _circle(self) -> list[PeerId]:
        return self.members()[: CIRCLE - 1]

    async def _keep_exchanging(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EXCHANGE_PERIOD):
                    await self._exchange_now.wait()
            self._exchange_now.clear()
            circle = self._circle()
            partners = self._parts.world.rng.sample(circle, min(PARTNERS, len(circle)))
            await asyncio.gather(*(self._exchange(partner) for partner in partners))

    async def _exchange(self, partner: PeerId) -> None:
        """One exchange. A partner that breaks the format loses standing; whatever happens, training goes on."""
        try:
            body = await self._ask(partner, self.policy.ask(partner), push=False)
            push = self.policy.take(partner, body)
            if push:
                await self._ask(partner, push, push=True)
            self.standings.exchanges += 1
        except ValueError as fault:
            self._parts.standing.fault(partner, f"exchange: {fault}", self._parts.world.clock.monotonic())
        except (PeerError, NetworkDown):
            pass

    async def _ask(self, partner: PeerId, body: bytes, push: bool) -> bytes:
        proof = self._access.proof(self._parts.identity.peer_id, partner)
        request = Exchange(self._access.tag, MODEL, body, push, proof)
        return (await self._parts.calls.ask(partner, request, Exchanged, EXCHANGE_TIMEOUT)).body

    # ---- answering ----

    def answer(self, peer: PeerId, request: Exchange) -> Exchanged:
        self._admit(peer, request.run, request.model, request.proof)
        try:
            if request.push:
                self.policy.take(peer, request.body)
                return Exchanged()
            return Exchanged(self.policy.answer(peer, request.body))
        except ValueError as fault:
            raise PeerMisbehaved(f"exchange: {fault}") from None

    async def payload(self, peer: PeerId, request: GetSnapshot) -> Payload:
        self._admit(peer, request.run, request.model, request.proof)
        return Payload.of(await self._parts.world.compute(self.policy.snapshot))

    def _admit(self, peer: PeerId, run: str, model: str, proof: bytes) -> None:
        if run != self._access.tag or model != MODEL:
            raise PeerRefused("unknown run", "this node does not learn that")
        if not self._access.admits(proof, peer, self._parts.identity.peer_id):
            raise PeerRefused("private", "the run is private and the proof of its key is missing or wrong")

    # ---- showing ----

    def status(self) -> LearningStatus:
        standings, evaluation = self.standings, self.standings.evaluation
        return LearningStatus(
            task=self.bench.task.name,
            parameters=self.bench.layout.size,
            rounds=standings.rounds,
            steps=self.trainer.steps_done,
            samples=self.trainer.samples,
            steps_per_second=self.trainer.speed,
            loss=standings.loss,
            test_loss=None if evaluation is None else evaluation.loss,
            accuracy=None if evaluation is None else evaluation.accuracy,
            update_norm=standings.update_norm,
            exchanges=standings.exchanges,
            entries=standings.entries,
            merged=standings.merged,
        )
