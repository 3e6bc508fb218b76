"""What passes between two hosts of a simulated swarm: one call, or one stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from .pipe import Flow, Send
from .swarm import Arrive, SimHost, SimSwarm

if TYPE_CHECKING:
    from .network import SimNetwork

T = TypeVar("T")


def fail(outcome: asyncio.Future[Any], error: Exception) -> None:
    if not outcome.done():
        outcome.set_exception(error)


def succeed(outcome: asyncio.Future[T], value: T) -> None:
    if not outcome.done():
        outcome.set_result(value)


class Call:
    """A call on its way. A doubled request is answered twice; the first answer counts."""

    def __init__(self, caller: SimNetwork, target: SimHost, request: bytes, outcome: asyncio.Future[bytes]) -> None:
        self.caller = caller
        self.request = request
        self._target = target
        self._outcome = outcome

    def arrive(self) -> None:
        server = self._target.network
        if server is None or not self._target.up:
            self._reset()
        else:
            server.serve(server.answer(self), self._reset)

    def answered(self, answer: bytes) -> None:
        if not self._outcome.done():
            self.caller.meet(self._target)
            succeed(self._outcome, answer)

    def _reset(self) -> None:
        self.caller.reset_by(self._target, self._outcome)


class Stream:
    """An open connection from `caller` to `server`, with a flow each way."""

    def __init__(self, swarm: SimSwarm, caller: SimHost, server: SimHost) -> None:
        self.caller = caller
        self.server = server
        self.forth = Flow(self._link(swarm, caller, server))
        self.back = Flow(self._link(swarm, server, caller))
        self._swarm = swarm
        swarm.record("stream", caller, server)
        swarm.streams[self] = None

    def break_off(self) -> None:
        """Both ends see a reset, unless they are done."""
        self._swarm.streams.pop(self, None)
        self.forth.break_off()
        self.back.break_off()

    @staticmethod
    def _link(swarm: SimSwarm, source: SimHost, target: SimHost) -> Send:
        last = 0.0

        def send(data: bytes, arrive: Arrive) -> None:
            nonlocal last
            last = swarm.carry(source, target, "piece", data, arrive, after=last)

        return send
