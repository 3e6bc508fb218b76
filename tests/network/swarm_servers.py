"""Servers for tests: the node's side of the seam, reduced to what a test needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from p2pnode.discovery.records import Records
from p2pnode.network.base import Network, Payload
from p2pnode.wire.envelope import unseal
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.messages import Find, Store, encode_message

Answer = Callable[[PeerId, bytes], Awaitable[bytes]]


async def echo(peer: PeerId, request: bytes) -> bytes:
    return peer.encode() + b" said " + request


async def fail(peer: PeerId, request: bytes) -> bytes:
    raise ValueError("secret detail")


async def dawdle(peer: PeerId, request: bytes) -> bytes:
    await asyncio.sleep(30)
    return b"too late"


class TestServer:
    """Answers by `answering`; streams what lies in `payloads` under the request."""

    __test__ = False

    def __init__(self, answering: Answer = echo) -> None:
        self.answering = answering
        self.payloads: dict[bytes, Payload | Exception] = {}
        self.faults: list[tuple[PeerId, str]] = []

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        return await self.answering(peer, request)

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        found = self.payloads[request]
        if isinstance(found, Exception):
            raise found
        return found

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        self.faults.append((peer, reason))


class RecordServer(TestServer):
    """A server that keeps records for others."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self._records: Records | None = None

    def attach(self, network: Network, identity: Identity, now: Callable[[], float]) -> Records:
        self._records = Records(network, identity, now)
        return self._records

    async def _answer(self, peer: PeerId, request: bytes) -> bytes:
        assert self._records is not None
        asked = unseal(request, Store, Find)
        if isinstance(asked, Store):
            return encode_message(self._records.serve_store(peer, asked))
        assert isinstance(asked, Find)
        return encode_message(self._records.serve_find(asked))
