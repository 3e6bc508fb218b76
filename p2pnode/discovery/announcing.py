"""What a node says about itself: signed announcements, in the directory and in direct words, and its goodbye."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from ..wire.addresses import Address, useful
from ..wire.errors import NetworkDown
from ..wire.ids import PeerId
from ..wire.messages import MAX_ADDRESSES, PROTOCOL, Announcement, Hello, JobAnnouncement, Welcome, encode_message
from ..wire.records import SignedRecord, sign_record
from ..wire.types import Seconds
from .directory import Directory
from .services import Services

ANNOUNCE_TTL: Seconds = 400.0
MOMENT: Seconds = 0.01
GOODBYE_LIMIT: Seconds = 2.0


@dataclass(frozen=True)
class SelfDescription:
    """Who this node is."""

    name: str
    role: str
    tag: str  # the run's name in the DHT; "" while the node does not know its run yet
    bootstrap: tuple[Address, ...]
    announced: Callable[[], tuple[JobAnnouncement, ...] | None] = lambda: None  # of its jobs; None: not known yet


class Announcer:
    """Signs and publishes what one node announces about itself. `record` is the latest one it signed."""

    def __init__(self, me: SelfDescription, services: Services, addresses: tuple[str, ...] = ()) -> None:
        self.record: SignedRecord | None = None
        self.addresses = addresses
        self.directory = Directory(services.records, me.tag or me.role, services.identity.peer_id)
        self._me = me
        self._services = services
        self._started = services.clock.now()

    async def announce(self) -> int:
        """Publish our announcement; returns how many other peers keep it."""
        await self.refresh_addresses()
        published = await self.directory.announce(self._announcement(), ANNOUNCE_TTL)
        self.record = published.record
        return published.copies

    async def refresh_addresses(self) -> bool:
        """Ask the network where we can be dialled; True when that has changed.

        A node learns only after a while that it is behind NAT, and through which relays others reach it.
        """
        before = self.addresses
        with contextlib.suppress(NetworkDown):
            self.addresses = useful(await self._services.network.addresses(), MAX_ADDRESSES)
        return self.addresses != before

    def hello(self, left: bool = False) -> Hello:
        """Our announcement for direct words, signed anew, so that it never loses against what the DHT has.

        `left` outlives our last word by a moment only, so that the first word after a restart outlives it in turn.
        """
        expiry = self._services.clock.now() + ANNOUNCE_TTL
        if left and self.record is not None:
            expiry = self.record.expiry + MOMENT
        value = encode_message(self._announcement(left))
        self.record = sign_record(self._services.identity, self.directory.key, value, expiry)
        return Hello(PROTOCOL, self.record)

    async def say_goodbye(self, peers: list[PeerId]) -> None:
        """Withdraw: a signed `left` with a later expiry, to the directory and to these peers. Bounded."""
        goodbye = self.hello(left=True)
        assert goodbye.announcement is not None
        ttl = goodbye.announcement.expiry - self._services.clock.now() + MOMENT
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_LIMIT):
                await asyncio.gather(
                    self.directory.announce(self._announcement(left=True), ttl),
                    *(self._services.calls.ask(peer, goodbye, Welcome, GOODBYE_LIMIT) for peer in peers),
                    return_exceptions=True,
                )

    def _announcement(self, left: bool = False) -> Announcement:
        me = self._me
        return Announcement(
            me.name,
            me.tag,
            self.addresses,
            role=me.role,
            started=self._started,
            left=left,
            jobs=me.announced(),
        )
