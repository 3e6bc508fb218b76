"""What peers may ask, and which function answers: a job has one table for calls and one for streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..network.base import Payload
from ..wire.errors import PeerRefused
from ..wire.ids import PeerId
from ..wire.messages import Message, decode_message

# Both get the peer and its request. They raise PeerRefused to say no, PeerMisbehaved when the request makes no sense.
Handler = Callable[[PeerId, Any], Message | Awaitable[Message]]
StreamHandler = Callable[[PeerId, Any], Awaitable[Payload]]


class Routes:
    """Handlers by type of request. Tags need only be unique within one table."""

    def __init__(
        self, calls: Mapping[type[Message], Handler], streams: Mapping[type[Message], StreamHandler] | None = None
    ) -> None:
        self._calls = calls
        self._streams = streams or {}

    def plus(self, other: Routes) -> Routes:
        """Both tables as one."""
        return Routes({**self._calls, **other._calls}, {**self._streams, **other._streams})

    def read(self, body: bytes) -> Message:
        """The request in an envelope's body; PeerMisbehaved when it is none of those answered here, or PeerRefused."""
        if not self._calls:
            raise PeerRefused("no calls", "nothing is answered here")
        return decode_message(body, *self._calls)

    async def answer(self, peer: PeerId, request: Message) -> Message:
        """The answer to a request that `read` gave."""
        answer = self._calls[type(request)](peer, request)
        return await answer if isinstance(answer, Awaitable) else answer

    async def stream(self, peer: PeerId, body: bytes) -> Payload:
        """What a request for a stream is answered with."""
        if not self._streams:
            raise PeerRefused("no streams", "nothing is streamed here")
        request = decode_message(body, *self._streams)
        return await self._streams[type(request)](peer, request)
