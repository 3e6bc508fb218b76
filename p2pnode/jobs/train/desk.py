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
    SwapSights,
    TellShards,
    Visit,
    VisitOver,
)

if TYPE_CHECKING:
    from .job import Learning


class Desk:
    """PeerRefused to say no, PeerMisbehaved when nonsense is asked."""

    def __init__(self, learning: Learning) -> None:
        self._learning = learning
        self._answers: dict[type, Callable[[PeerId, Any], Answer | Awaitable[Answer]]] = {
            Exchange: learning.exchanging.answer,
            Bridge: learning.exchanging.bridging.answer,
            SwapSights: learning.likeness.answer,
            GetCircle: self._circle,
            TellShards: learning.holdings.answer,
            GetNeeds: learning.passing.needs,
            Visit: learning.visiting.answer,
            VisitOver: learning.visiting.over,
        }

    async def answer(self, peer: PeerId, request: Request) -> Answer:
        """The answer to one of the requests above."""
        answer = self._answers[type(request)](peer, request)
        return await answer if isinstance(answer, Awaitable) else answer

    async def payload(self, peer: PeerId, request: AnyStreamRequest) -> Payload:
        if isinstance(request, GetShard):
            return await self._learning.holdings.payload(peer, request)
        if isinstance(request, GetWeights):
            return await self._learning.visiting.payload(peer, request)
        return await self._learning.exchanging.snapshots.payload(peer, request)

    def _circle(self, peer: PeerId, request: GetCircle) -> CircleIs:
        circling = self._learning.circling
        if circling is None:
            raise PeerRefused("circle", "this node's circle is declared")
        return circling.words.answer(peer, request)
