"""What peers may ask of a node that learns, and which part of it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ...network.base import Payload
from ...wire.errors import PeerRefused
from ...wire.ids import PeerId
from ...wire.messages import (
    Answer,
    AnyStreamRequest,
    Bridge,
    CircleIs,
    Exchange,
    GetCircle,
    GetNeeds,
    GetShard,
    GetWeights,
    Request,
    SwapModels,
    SwapNeighbours,
    SwapResult,
    SyncShards,
)

if TYPE_CHECKING:
    from .job import TrainJob


class Desk:
    """PeerRefused to say no, PeerMisbehaved when nonsense is asked."""

    def __init__(self, learning: TrainJob) -> None:
        self._learning = learning
        self._answers: dict[type, Callable[[PeerId, Any], Answer | Awaitable[Answer]]] = {
            Exchange: learning.partner_exchange.answer,
            Bridge: learning.bridging.answer,
            SwapNeighbours: learning.likeness.answer,
            GetCircle: self._circle,
            SyncShards: learning.shard_driver.answer,
            GetNeeds: learning.passing.needs,
            SwapModels: learning.model_swap.answer,
            SwapResult: learning.model_swap.over,
        }

    async def answer(self, peer: PeerId, request: Request) -> Answer:
        """The answer to one of the requests above."""
        answer = self._answers[type(request)](peer, request)
        return await answer if isinstance(answer, Awaitable) else answer

    async def payload(self, peer: PeerId, request: AnyStreamRequest) -> Payload:
        if isinstance(request, GetShard):
            return await self._learning.shard_driver.payload(peer, request)
        if isinstance(request, GetWeights):
            return await self._learning.model_swap.payload(peer, request)
        return await self._learning.snapshots.payload(peer, request)

    def _circle(self, peer: PeerId, request: GetCircle) -> CircleIs:
        circle_driver = self._learning.circle_driver
        if circle_driver is None:
            raise PeerRefused("circle", "this node's circle is declared")
        return circle_driver.founding.answer(peer, request)
