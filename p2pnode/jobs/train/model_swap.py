"""Model swaps: two nodes train each other's model for a few steps, because their data may not travel or are too large.

ask       may we swap models?  →  whether the data are private, and the size of a shard of them
weights   each fetches a copy of the other's weights and trains it for a few local steps on its own samples
result    the delta goes back and counts as if those steps had been done there, unless it does harm

Only copies travel, and everything is in memory: if a node dies, only the swap is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from blake3 import blake3

from ...compression.delta import SparseDelta
from ...compression.weights import Floats
from ...discovery.services import Services
from ...merging.messages import Exchanged
from ...merging.policy import Policy
from ...merging.values import decode_values, encode_values
from ...network.base import MemorySink, Payload, StreamLimits
from ...runtime.calls import JobCalls
from ...shards.shard import SHARD_SAMPLES
from ...similarity.driver import PeerSimilarity
from ...training.host import NoSamples
from ...training.trainer import Trainer
from ...wire.errors import Diverged, LocalProblem, NetworkDown, PeerError, PeerMisbehaved, PeerRefused, TaskProblem
from ...wire.ids import PeerId, short
from ...wire.types import Seconds
from .messages import GetWeights, SwapAccepted, SwapModels, SwapResult
from .model_swap_rules import choose_swap, decode_result, encode_result, swap_entries, with_result

EVERY_ROUNDS = 4  # between swaps, whoever asked; with fewer swaps models forget in between (docs/log.md)
SHARE = 0.25  # of the local steps that go to models of others
ASK_AGAIN = 16 * EVERY_ROUNDS  # rounds after a refusal
NOT_NOW = 2  # rounds after a peer was busy
CANDIDATES = 4  # peers drawn at random, of which the least similar is asked
BYTES = 4  # per weight that is sent
JUDGED_BY = 256  # test samples that a result is tried on
ASK_TIMEOUT: Seconds = 10.0


@dataclass(frozen=True)
class SwapRules:
    """What this node allows. Of private data nothing is revealed but that models may be trained on them."""

    open: bool = True
    private: bool = False
    own_data: bool = False  # the data here are not what every node has


class ModelSwap:
    """Swaps one model with other nodes: call `after_round` after every round; `run` lasts as long as the node."""

    def __init__(
        self,
        services: Services,
        calls: JobCalls,
        policy: Policy,
        trainer: Trainer,
        similarity: PeerSimilarity,
        out_of_reach: Callable[[], list[PeerId]],
        swap_rules: SwapRules,
    ) -> None:
        """`out_of_reach` gives the members whose work does not reach this node by itself."""
        self.made = 0  # swaps whose result was kept
        self.hosted = 0
        self.bytes = 0
        self._services = services
        self._calls = calls
        self._policy = policy
        self._trainer = trainer
        self._similarity = similarity
        self._out_of_reach = out_of_reach
        self._swap_rules = swap_rules
        self._round = 0
        self._next_round = EVERY_ROUNDS
        self._not_before: dict[PeerId, int] = {}  # the round from which each may be asked again
        self._guest: tuple[PeerId, int] | None = None  # the peer whose model is trained here next, and local steps
        self._busy = False
        self._host: PeerId | None = None  # the peer that may fetch a copy of our weights
        self._sent = False
        self._results: list[SparseDelta] = []
        self._now = asyncio.Event()

    # ---- when ----

    def after_round(self, round: int) -> None:
        """A round has ended."""
        self._round = round
        if self._swap_rules.open and round >= self._next_round:
            self._now.set()

    async def run(self) -> None:
        """Train models that wait, and ask for swaps, until cancelled."""
        while True:
            await self._now.wait()
            self._now.clear()
            await self._services.limiter.free()
            self._busy = True
            try:
                if self._guest is not None:
                    await self._train_for(*self._guest)
                else:
                    await self.once()
            finally:
                self._busy, self._guest = False, None

    # ---- asking ----

    async def once(self) -> bool:
        """Ask a peer to swap models; returns whether it agreed."""
        peer = self._choose_peer()
        if peer is None:
            return False
        self._host, self._sent = peer, False
        steps = self._steps()
        try:
            accepted = await self._calls.ask(peer, SwapModels(steps), SwapAccepted, ASK_TIMEOUT)
        except (PeerError, NetworkDown) as problem:
            busy = isinstance(problem, PeerRefused) and problem.code == "busy"
            self._not_before[peer] = self._round + (NOT_NOW if busy else ASK_AGAIN)
            return False
        self._next_round = self._round + EVERY_ROUNDS
        size = self._trainer.model_host.layout.size
        swap = choose_swap(accepted.shard_bytes, BYTES * size, 2 * swap_entries(size), accepted.private)
        self._services.events.say("swap", f"with {self._services.table.name_of(peer)}: {swap.reason}")
        if not swap.model_travels:
            self._host, self._not_before[peer] = None, self._round + ASK_AGAIN
            return False
        await self._train_for(peer, steps)
        return True

    def _choose_peer(self) -> PeerId | None:
        """Draws a few members whose work does not reach this node; returns the one with the least similar model."""
        able = [peer for peer in self._out_of_reach() if self._not_before.get(peer, 0) <= self._round]
        self._not_before = {peer: when for peer, when in self._not_before.items() if when > self._round}
        asked = self._services.seams.rng.sample(able, min(CANDIDATES, len(able)))
        return min(asked, key=lambda peer: self._similarity.similarity_to(peer) or 0.0, default=None)

    def _steps(self) -> int:
        """The local steps of a swap: a small share of all local steps."""
        return max(1, round(SHARE * EVERY_ROUNDS * self._trainer.steps_done / max(1, self._round)))

    async def payload(self, peer: PeerId, request: GetWeights) -> Payload:
        """A copy of our weights for the peer we swap with; PeerRefused to anyone else."""
        if peer != self._host:
            raise PeerRefused("no swap", "no swap was agreed on")
        data = await self._services.seams.background(lambda: encode_values(self._policy.weights(), 8 * BYTES))
        self._sent = True
        self.bytes += len(data)
        return Payload.of(data)

    async def over(self, peer: PeerId, request: SwapResult) -> Exchanged:
        """Take in the result of a swap. Late, repeated or unexpected ones are ignored."""
        if peer == self._host and self._sent:
            self._host = None
            size = self._trainer.model_host.layout.size
            try:
                self._results.append(await self._services.seams.background(lambda: decode_result(request.delta, size)))
            except ValueError as fault:
                raise PeerMisbehaved(f"model swap: {fault}") from None
            self.bytes += len(request.delta)
        return Exchanged()

    async def add_results(self, weights: Floats) -> Floats:
        """A round's weights with the results of swaps since the last round."""
        waiting, self._results = self._results, []
        for delta in waiting:
            weights = await self._services.seams.compute(
                lambda weights=weights, delta=delta: self._kept(weights, delta)  # type: ignore[misc]
            )
        return weights

    def _kept(self, weights: Floats, delta: SparseDelta) -> Floats:
        """Heavy. The weights with a result, if the test loss does not rise: nobody vouches for the other node."""
        together = with_result(weights, delta)
        some = self._trainer.model_host.test.spread(JUDGED_BY)
        try:
            before, after = (self._trainer.evaluate(each, some).loss for each in (weights, together))
        except NoSamples:
            return weights  # it cannot be tried
        kept = after <= before
        self.made += kept
        return together if kept else weights

    # ---- hosting ----

    def answer(self, peer: PeerId, request: SwapModels) -> SwapAccepted:
        """Agree to swap models; PeerRefused when this node does not."""
        swap_rules = self._swap_rules
        if not swap_rules.open:
            raise PeerRefused("no swaps", "this node swaps no models")
        if not swap_rules.own_data or not self._trainer.samples:
            raise PeerRefused("no swaps", "this node has no data of its own")
        if peer not in self._out_of_reach():
            raise PeerRefused("no swaps", "what is learned here reaches you anyway")
        if self._busy or self._guest is not None or self._round < self._next_round or self._services.limiter.resting:
            raise PeerRefused("busy", "not now")
        self._next_round = self._round + EVERY_ROUNDS
        self._host, self._sent, self._guest = peer, False, (peer, min(request.steps, self._steps()))
        self._now.set()
        return SwapAccepted(swap_rules.private, SHARD_SAMPLES * self._trainer.pool.sample_bytes)

    async def _train_for(self, peer: PeerId, steps: int) -> None:
        """Train a copy of a peer's weights on the samples here, and send back the delta."""
        weights = await self._fetch(peer)
        if weights is None or not self._trainer.samples:
            return
        try:
            delta = await self._services.seams.compute(lambda: self._train(peer, weights, steps), steps)
            await self._calls.ask(peer, SwapResult(delta), Exchanged, ASK_TIMEOUT)
        except (PeerError, NetworkDown, Diverged, LocalProblem, TaskProblem, ValueError):
            return  # weights that cannot be trained are the other node's loss
        self.hosted += 1
        self.bytes += len(delta)

    async def _fetch(self, peer: PeerId) -> Floats | None:
        size = self._trainer.model_host.layout.size
        sink = MemorySink()
        try:
            await self._calls.fetch(peer, GetWeights(), sink, StreamLimits(BYTES * size))
            return await self._services.seams.background(lambda: decode_values(sink.content(), size, 8 * BYTES))
        except (ValueError, PeerMisbehaved) as fault:
            self._services.fault(peer, f"model swap: {fault}")
        except (PeerError, NetworkDown):
            pass
        return None

    def _train(self, peer: PeerId, weights: Floats, steps: int) -> bytes:
        """Heavy. Train with a separate optimizer and order. The model's first scores count for the samples' states."""
        pool, model_host = self._trainer.pool, self._trainer.model_host
        seed = int.from_bytes(blake3(f"{peer} {self._round}".encode()).digest(4)) >> 1
        trainer = Trainer(model_host, pool.own, seed, brake=self._trainer.brake)
        after = trainer.steps(weights, steps, at=self._trainer.steps_done).weights
        seen = np.flatnonzero(~np.isnan(trainer.pool.scores.first))
        pool.hear(f"visit {short(peer)}", pool.own[seen], trainer.pool.scores.first[seen])
        return encode_result(weights, after)
