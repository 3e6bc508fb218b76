"""Members of a simulated swarm that only keep records and announce themselves, for benchmarks of large directories."""

from __future__ import annotations

import asyncio

from p2pnode.discovery.announcing import ANNOUNCE_TTL
from p2pnode.discovery.directory import Directory
from p2pnode.discovery.membership import ANNOUNCE_PERIOD
from p2pnode.discovery.records import Records
from p2pnode.network.base import Payload
from p2pnode.network.sim import SimNetwork
from p2pnode.simulate import SimClock
from p2pnode.wire.addresses import Address
from p2pnode.wire.envelope import unseal
from p2pnode.wire.errors import PeerRefused
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.messages import Announcement, Find, Store, encode_message

TAG = "benchmarkbenchmarkbenchmar"


class Member:
    """The part of a node that takes part in the directory: it keeps records for others and announces itself."""

    def __init__(self, network: SimNetwork, identity: Identity) -> None:
        self.network = network
        self.records = Records(network, identity, SimClock(0.0).time)
        self.directory = Directory(self.records, TAG, identity.peer_id)

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        message = unseal(request, Store, Find)
        if isinstance(message, Store):
            return encode_message(self.records.serve_store(peer, message))
        assert isinstance(message, Find)
        return encode_message(self.records.serve_find(message))

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        raise PeerRefused("unknown")

    def misbehaved(self, peer: PeerId, reason: str) -> None:
        raise AssertionError(reason)

    async def join(self, when: float, first: Address) -> None:
        """Start at a time, contact the first member, announce, and announce again one period later."""
        await asyncio.sleep(when)
        await self.network.start(self)
        if first.peer != self.network.peer:
            await self.network.contact(first, 30.0)
        await self.announce()
        await asyncio.sleep(ANNOUNCE_PERIOD)
        await self.announce()

    async def announce(self) -> None:
        announcement = Announcement(self.network.peer[-8:], TAG, await self.network.addresses())
        await self.directory.announce(announcement, ANNOUNCE_TTL)
