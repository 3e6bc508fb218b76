"""Visits: where data stay home, or weigh more than a model, models go to them.

visit     may my model come, and yours to me?  →  whether these data are private, and what a shard of them weighs
weights   each fetches a copy of the other's weights, and trains it for a few local steps on its own samples
over      the delta goes home, and counts there as if those steps had been done there, unless it does harm

Only copies travel and all of it is in memory: whoever dies in the middle costs nobody more than the visit.
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
from ...training.evaluation import spread
from ...training.trainer import Trainer
from ...wire.errors import Diverged, LocalProblem, NetworkDown, PeerError, PeerMisbehaved, PeerRefused, TaskProblem
from ...wire.ids import PeerId, short
from ...wire.types import Seconds
from .messages import GetWeights, SwapAccepted, SwapModels, SwapResult
from .model_swap_rules import at_home, brought, choose_swap, swap_entries, to_bring

EVERY_ROUNDS = 4  # a swap, whoever began it; more seldom, what was brought is forgotten in between (docs/log.md)
SHARE = 0.25  # of the local steps, that visitors may have
ASK_AGAIN = 16 * EVERY_ROUNDS  # rounds, after a no
NOT_NOW = 2  # rounds, after one who is busy
CANDIDATES = 4  # of whom the least alike is asked
BYTES = 4  # of a weight on its way
JUDGED_BY = 256  # test samples
ASK_TIMEOUT: Seconds = 10.0
Want = Callable[[], list[PeerId]]


@dataclass(frozen=True)
class SwapRules:
    """What a node says to visitors. Of private data no more is ever told than that models may come."""

    open: bool = True
    private: bool = False
    own_data: bool = False  # what is trained on here is not what every node has


class ModelSwap:
    """One model's visits to others, and those of others. `soon` after every round; `keep` while the node lives."""

    def __init__(
        self,
        services: Services,
        calls: JobCalls,
        policy: Policy,
        trainer: Trainer,
        likeness: PeerSimilarity,
        elsewhere: Want,
        swap_rules: SwapRules,
    ) -> None:
        """`elsewhere` tells which members learn what does not come here anyway."""
        self.made = 0  # and kept
        self.hosted = 0
        self.bytes = 0
        self._services = services
        self._calls = calls
        self._policy = policy
        self._trainer = trainer
        self._likeness = likeness
        self._elsewhere = elsewhere
        self._swap_rules = swap_rules
        self._round = 0
        self._next_round = EVERY_ROUNDS
        self._not_before: dict[PeerId, int] = {}  # rounds
        self._guest: tuple[PeerId, int] | None = None  # who waits for its visit, and for how many local steps
        self._busy = False
        self._host: PeerId | None = None  # where a copy of our weights may be fetched from us for
        self._sent = False
        self._brought: list[SparseDelta] = []
        self._now = asyncio.Event()

    # ---- when ----

    def soon(self, round: int) -> None:
        """A round is over."""
        self._round = round
        if self._swap_rules.open and round >= self._next_round:
            self._now.set()

    async def keep(self) -> None:
        """Host who waits, and go on visits, until cancelled."""
        while True:
            await self._now.wait()
            self._now.clear()
            await self._services.limiter.free()
            self._busy = True
            try:
                if self._guest is not None:
                    await self._entertain(*self._guest)
                else:
                    await self.once()
            finally:
                self._busy, self._guest = False, None

    # ---- going ----

    async def once(self) -> bool:
        """Swap models with somebody; whether that was agreed on."""
        peer = self._whom()
        if peer is None:
            return False
        self._host, self._sent = peer, False
        steps = self._steps()
        try:
            told = await self._calls.ask(peer, SwapModels(steps), SwapAccepted, ASK_TIMEOUT)
        except (PeerError, NetworkDown) as problem:
            busy = isinstance(problem, PeerRefused) and problem.code == "busy"
            self._not_before[peer] = self._round + (NOT_NOW if busy else ASK_AGAIN)
            return False
        self._next_round = self._round + EVERY_ROUNDS
        size = self._trainer.model_host.layout.size
        swap = choose_swap(told.shard_bytes, BYTES * size, 2 * swap_entries(size), told.private)
        self._services.events.say("visit", f"with {short(peer)}: {swap.reason}")
        if not swap.model_travels:
            self._host, self._not_before[peer] = None, self._round + ASK_AGAIN
            return False
        await self._entertain(peer, steps)
        return True

    def _whom(self) -> PeerId | None:
        """Of a few members whose work does not come here anyway the one whose model is least like ours."""
        able = [peer for peer in self._elsewhere() if self._not_before.get(peer, 0) <= self._round]
        self._not_before = {peer: when for peer, when in self._not_before.items() if when > self._round}
        asked = self._services.seams.rng.sample(able, min(CANDIDATES, len(able)))
        return min(asked, key=lambda peer: self._likeness.similarity_to(peer) or 0.0, default=None)

    def _steps(self) -> int:
        """What a visit takes of both: a small share of all local steps."""
        return max(1, round(SHARE * EVERY_ROUNDS * self._trainer.steps_done / max(1, self._round)))

    async def payload(self, peer: PeerId, request: GetWeights) -> Payload:
        """A copy of our weights for where we visit; PeerRefused to anyone else."""
        if peer != self._host:
            raise PeerRefused("no visit", "none was agreed on")
        data = await self._services.seams.background(lambda: encode_values(self._policy.weights(), 8 * BYTES))
        self._sent = True
        self.bytes += len(data)
        return Payload.of(data)

    async def over(self, peer: PeerId, request: SwapResult) -> Exchanged:
        """What our visit came to; what comes late, twice or from nobody we visit is passed over."""
        if peer == self._host and self._sent:
            self._host = None
            size = self._trainer.model_host.layout.size
            try:
                self._brought.append(await self._services.seams.background(lambda: brought(request.delta, size)))
            except ValueError as fault:
                raise PeerMisbehaved(f"visit: {fault}") from None
            self.bytes += len(request.delta)
        return Exchanged()

    async def come_home(self, weights: Floats) -> Floats:
        """A round's weights with what visits have brought since the last."""
        waiting, self._brought = self._brought, []
        for delta in waiting:
            weights = await self._services.seams.compute(
                lambda weights=weights, delta=delta: self._kept(weights, delta)  # type: ignore[misc]
            )
        return weights

    def _kept(self, weights: Floats, delta: SparseDelta) -> Floats:
        """Heavy. What came home is the host's word: it stays only if the test data do not speak against it."""
        together = at_home(weights, delta)
        some = spread(self._trainer.model_host.test, JUDGED_BY)
        before, after = (self._trainer.evaluate(each, some).loss for each in (weights, together))
        kept = after <= before
        self.made += kept
        return together if kept else weights

    # ---- hosting ----

    def answer(self, peer: PeerId, request: SwapModels) -> SwapAccepted:
        """Whether a model may come, and ours go there; PeerRefused when not."""
        swap_rules = self._swap_rules
        if not swap_rules.open:
            raise PeerRefused("no visits", "this node takes no visitors")
        if not swap_rules.own_data or not self._trainer.samples:
            raise PeerRefused("no visits", "there are no data here that others have not")
        if peer not in self._elsewhere():
            raise PeerRefused("no visits", "what is learned here gets to you anyway")
        if self._busy or self._guest is not None or self._round < self._next_round or self._services.limiter.resting:
            raise PeerRefused("busy", "not now")
        self._next_round = self._round + EVERY_ROUNDS
        self._host, self._sent, self._guest = peer, False, (peer, min(request.steps, self._steps()))
        self._now.set()
        return SwapAccepted(swap_rules.private, SHARD_SAMPLES * self._trainer.pool.sample_bytes)

    async def _entertain(self, peer: PeerId, steps: int) -> None:
        """Train a copy of a peer's weights on the samples here, and send home what that did."""
        weights = await self._fetch(peer)
        if weights is None or not self._trainer.samples:
            return
        try:
            delta = await self._services.seams.compute(lambda: self._train(peer, weights, steps), steps)
            await self._calls.ask(peer, SwapResult(delta), Exchanged, ASK_TIMEOUT)
        except (PeerError, NetworkDown, Diverged, LocalProblem, TaskProblem, ValueError):
            return  # it is the visitor's loss: weights that cannot be trained are not brought home
        self.hosted += 1
        self.bytes += len(delta)

    async def _fetch(self, peer: PeerId) -> Floats | None:
        size = self._trainer.model_host.layout.size
        sink = MemorySink()
        try:
            await self._calls.fetch(peer, GetWeights(), sink, StreamLimits(BYTES * size))
            return await self._services.seams.background(lambda: decode_values(sink.content(), size, 8 * BYTES))
        except (ValueError, PeerMisbehaved) as fault:
            self._services.fault(peer, f"visit: {fault}")
        except (PeerError, NetworkDown):
            pass
        return None

    def _train(self, peer: PeerId, weights: Floats, steps: int) -> bytes:
        """Heavy. With an optimizer and an order of its own; what the visitor first makes of the samples is heard."""
        pool, model_host = self._trainer.pool, self._trainer.model_host
        seed = int.from_bytes(blake3(f"{peer} {self._round}".encode()).digest(4)) >> 1
        visitor = Trainer(model_host, pool.own, seed, brake=self._trainer.brake)
        after = visitor.steps(weights, steps, at=self._trainer.steps_done).weights
        seen = np.flatnonzero(~np.isnan(visitor.pool.scores.first))
        pool.hear(f"visit {short(peer)}", pool.own[seen], visitor.pool.scores.first[seen])
        return to_bring(weights, after)
