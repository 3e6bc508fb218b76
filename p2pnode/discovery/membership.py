"""Keeps a node in touch with its swarm. Four loops that never give up: contact, announce, read the directory, ping.

Bootstrap addresses and the peer book are contacted again without end, so that a node whose bootstrap was down joins
when it comes back, and two halves of a swarm that share any address find each other again. A node learns of peers in
three ways: the directory in the DHT, other peers, and peers that greet it.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field, replace

from ..network.base import Health
from ..wire.addresses import Address
from ..wire.bounded import put_bounded
from ..wire.errors import NetworkDown, PeerError, PeerMisbehaved, PeerRefused
from ..wire.ids import PeerId
from ..wire.messages import MAX_PEERS_PER_ANSWER, GetPeers, Peers, Ping, Pong, Welcome
from ..wire.types import Seconds
from .announcing import Announcer, SelfDescription
from .services import Services
from .table import in_a_crowd

CONTACT_TIMEOUT: Seconds = 8.0
SEARCH_PAUSE: tuple[Seconds, Seconds] = (0.5, 15.0)  # shortest and longest pause between rounds while nobody answers
CONTACT_PERIOD: Seconds = 60.0  # between rounds once connected
ANNOUNCE_PERIOD: Seconds = 120.0
READ_PAUSE: tuple[Seconds, Seconds] = (0.5, 90.0)
PING_PERIOD: Seconds = 3.0
PING_TIMEOUT: Seconds = 4.0
PINGS_AT_ONCE = 2
NEWCOMER_PAUSE: Seconds = 0.25  # spreads the pings when many peers arrive at once
ASK_PEERS_EVERY = 5  # ping rounds
HEARD_WINDOW: Seconds = 10.0  # connected means that a peer answered within this time
GREET_AT_ONCE = 8  # new peers greeted directly; the others read about us in the directory
RENEW_BEFORE: Seconds = 120.0  # a peer whose announcement expires within this time is greeted for a new one
MAX_NOTIFIED = 48  # peers greeted at once about news of ours
BOOK_TRIES = 8  # addresses of the book contacted in one round: the likeliest, and as many of the others
MAX_OUTCOMES = 64  # addresses of which it is remembered what came of contacting them
GOODBYES = 16  # peers that get a direct message when we leave


Outcome = Welcome | PeerError | NetworkDown  # of contacting an address; PeerMisbehaved: another peer is there


@dataclass
class Search:
    """How the search for other peers goes, for people to read."""

    outcomes: dict[Address, Outcome] = field(default_factory=dict)  # of the latest contact with each address
    trouble: str = ""

    @property
    def welcomes(self) -> dict[Address, Welcome]:
        return {address: one for address, one in self.outcomes.items() if isinstance(one, Welcome)}


class Membership:
    """Runs the four loops of one node."""

    def __init__(
        self, me: SelfDescription, services: Services, addresses: tuple[str, ...] = (), search: Search | None = None
    ) -> None:
        self.me = me
        self.search = search or Search()
        self.announcer = Announcer(me, services, addresses)
        self._services = services
        self._rng = services.seams.rng
        self._table = services.table
        self._calls = services.calls
        self._announce_now = asyncio.Event()
        self._read_now = asyncio.Event()
        self._contact_now = asyncio.Event()

    def in_run(self, tag: str) -> Membership:
        """Return the membership of the same node once it knows its run."""
        return Membership(replace(self.me, tag=tag), self._services, self.announcer.addresses, self.search)

    @property
    def connected(self) -> bool:
        """Whether a remote peer answered a call of ours within HEARD_WINDOW. Nothing else counts."""
        heard = self._calls.last_heard
        up = self._services.network.health.state == "up"
        return up and heard is not None and self._services.seams.clock.monotonic() - heard <= HEARD_WINDOW

    @property
    def looks_for_others(self) -> bool:
        return bool(self.me.bootstrap) or len(self._services.registry.book) > 0

    # ---- loops ----

    async def run(self) -> None:
        """Run all loops until cancelled."""
        self._services.network.on_change(self._network_changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_contact())
            group.create_task(self._keep_announced())
            group.create_task(self._keep_reading())
            group.create_task(self._keep_pinging())

    async def _keep_contact(self) -> None:
        pause = SEARCH_PAUSE[0]
        while True:
            await self.contact_round()
            self._services.clock.established = True  # everybody who could know the swarm's time was asked
            pause = SEARCH_PAUSE[0] if self.connected else min(pause * 2, SEARCH_PAUSE[1])
            wait = CONTACT_PERIOD if self.connected or not self.looks_for_others else pause
            if await self._woken(self._contact_now, wait):
                pause = SEARCH_PAUSE[0]

    async def _keep_announced(self) -> None:
        while True:
            pause = ANNOUNCE_PERIOD
            with contextlib.suppress(PeerError, NetworkDown):
                copies = await self.announcer.announce()
                if copies == 0 and self._table.count_present():
                    pause = ANNOUNCE_PERIOD / 10  # peers are there, but none of them stores our announcement yet
            await self._woken(self._announce_now, pause)

    async def _keep_reading(self) -> None:
        pause = READ_PAUSE[0]
        while True:
            news = False
            with contextlib.suppress(PeerError, NetworkDown):
                news = await self.read_directory(thorough=pause < READ_PAUSE[1])
            pause = READ_PAUSE[0] if news else min(pause * 2, READ_PAUSE[1])
            if await self._woken(self._read_now, pause):
                pause = READ_PAUSE[0]

    async def _keep_pinging(self) -> None:
        rounds = 0
        while True:
            was_connected = self.connected
            newcomers = self._newcomers or await self._woken(self._services.registry.newcomer, PING_PERIOD)
            rounds += 1
            picks = self._table.pick_to_ping(self._rng, GREET_AT_ONCE if newcomers else PINGS_AT_ONCE)
            await asyncio.gather(*(self._ping(peer) for peer in picks))
            if newcomers:
                await asyncio.sleep(NEWCOMER_PAUSE)
            if rounds % ASK_PEERS_EVERY == 0 and not self._table.crowd:
                await self._ask_someone_for_peers()
            await self._greet_before_expiry()
            self._services.registry.tidy()
            if await self.announcer.refresh_addresses():
                self._announce_now.set()
            if was_connected and not self.connected:
                self._contact_now.set()

    @property
    def _newcomers(self) -> bool:
        """Whether some peer was not tried yet, and we have a network to try it."""
        return bool(self._table.urgent()) and self._services.network.health.state == "up"

    # ---- contact ----

    async def contact_round(self) -> None:
        """Contact the peers we should know: all of them while nobody answers, else those not heard from lately."""
        await asyncio.gather(*(self.contact(address) for address in self._addresses_to_try()))

    def _addresses_to_try(self) -> list[Address]:
        here = {peer.id for peer in self._table.present() if peer.heard is not None} if self.connected else set()
        here.add(self._services.identity.peer_id)
        bootstrap = [address for address in self.me.bootstrap if address.peer not in here]
        met = self._services.registry.book.addresses()
        book = [address for address in met if address.peer not in here and address not in bootstrap]
        if not self.connected:
            likely, others = book[:BOOK_TRIES], book[BOOK_TRIES:]
            return bootstrap + likely + self._rng.sample(others, min(BOOK_TRIES, len(others)))
        return bootstrap + ([self._rng.choice(book)] if book else [])

    async def contact(self, address: Address) -> bool:
        """Dial one address and greet the peer there. Returns False on failure; `search` keeps the reason for people."""
        outcome = await self._contacted(address)
        put_bounded(self.search.outcomes, address, outcome, MAX_OUTCOMES)
        self.search.trouble = "" if isinstance(outcome, Welcome) else f"{address.transport}: {outcome}"
        return isinstance(outcome, Welcome)

    async def _contacted(self, address: Address) -> Outcome:
        try:
            await self._services.network.contact(address, CONTACT_TIMEOUT)
        except (PeerError, NetworkDown) as error:
            return error
        try:
            return await self.greet(address.peer)
        except PeerMisbehaved as fault:  # the peer is the right one, but we do not understand each other
            return PeerRefused("protocol", f"its answer is not understood: {fault}")
        except (PeerError, NetworkDown) as error:
            return error

    async def greet(self, peer: PeerId) -> Welcome:
        """Greet a peer and ask it for other peers. Its time is asked first, because our own record needs it."""
        clock = self._services.seams.clock
        if not self._services.clock.established:
            await self._pinged(peer, CONTACT_TIMEOUT)
        begun = clock.monotonic()
        welcome = await self._calls.ask(peer, self.announcer.hello(), Welcome, CONTACT_TIMEOUT)
        self._services.clock.report(peer, welcome.time, clock.monotonic() - begun)
        self._welcomed(peer, welcome)
        await self._ask_for_peers(peer)
        return welcome

    async def _ask_for_peers(self, peer: PeerId) -> None:
        if not self.me.tag:
            return
        known = await self._calls.ask(peer, GetPeers(self.me.tag), Peers)
        new = [PeerId(record.peer) for record in known.announcements if self._services.registry.take_in(record, peer)]
        if new:
            self._announce_now.set()
            await self._greet_some(new)

    async def _ask_someone_for_peers(self) -> None:
        members = [peer.id for peer in self._table.present(self.me.tag)]
        if members:
            await self._ask_quietly_for_peers(self._rng.choice(members))

    async def _ask_quietly_for_peers(self, peer: PeerId) -> None:
        with contextlib.suppress(PeerError, NetworkDown):
            await self._ask_for_peers(peer)

    async def _greet_some(self, peers: list[PeerId]) -> None:
        """Greet a few new peers at once; the others will read about us in the directory."""
        picks = self._rng.sample(peers, min(GREET_AT_ONCE, len(peers)))
        await asyncio.gather(*(self._greet_quietly(pick) for pick in picks))

    async def tell(self, peers: list[PeerId]) -> None:
        """Announce something new about us: to these peers at once, to all others through the directory."""
        self._announce_now.set()
        await self.announce_to(peers)

    async def announce_to(self, peers: list[PeerId]) -> None:
        """Announce us to these peers, and to nobody else."""
        await asyncio.gather(*(self._greet_quietly(peer) for peer in peers[:MAX_NOTIFIED]))

    async def _greet_quietly(self, peer: PeerId) -> None:
        with contextlib.suppress(PeerError, NetworkDown):
            self._welcomed(peer, await self._calls.ask(peer, self.announcer.hello(), Welcome))

    async def _greet_before_expiry(self) -> None:
        """Greet a peer before its announcement expires: in a crowd we may not read of it again for long."""
        soon = self._table.running_out(self._services.clock.now() + RENEW_BEFORE)
        if soon is not None:
            await self._greet_quietly(soon)

    def _welcomed(self, peer: PeerId, welcome: Welcome) -> None:
        """Take in a peer's answer to our greeting, with its latest announcement."""
        if welcome.announcement is not None and welcome.announcement.peer == peer:
            self._services.registry.take_in(welcome.announcement, peer)
        known = self._table.get(peer)
        if known is not None:
            self._services.registry.answered(known)

    async def say_goodbye(self) -> None:
        """Announce that we leave, so that peers know at once. Takes a bounded time."""
        await self.announcer.say_goodbye([peer.id for peer in self._table.present()][:GOODBYES])

    # ---- learning of peers ----

    async def read_directory(self, thorough: bool = True) -> bool:
        """Read our part of the directory. Returns True when it named a new peer."""
        directory, table, note = self.announcer.directory, self._table, self._services.registry.note
        found = await directory.read(self._rng, thorough, table.crowd)
        new = [peer for peer, (record, announcement) in found.items() if note(record, announcement)]
        table.crowd = in_a_crowd(len(table), table.max_peers, directory.whole)
        await self._greet_some(new)
        return bool(new)

    async def _pinged(self, peer: PeerId, timeout: Seconds) -> Pong | None:
        """The peer's answer to a ping, or None when there is none; its time is noted."""
        clock = self._services.seams.clock
        begun = clock.monotonic()
        try:
            pong = await self._calls.ask(peer, Ping(), Pong, timeout)
        except (PeerError, NetworkDown):
            return None
        self._services.clock.report(peer, pong.time, clock.monotonic() - begun)
        return pong

    async def _ping(self, peer: PeerId) -> None:
        known = self._table.get(peer)
        if known is None:
            return
        pong = await self._pinged(peer, PING_TIMEOUT)
        if pong is None:
            self._services.registry.did_not_answer(known)
            return
        self._services.registry.answered(known)
        if not pong.knows_you:
            await self._greet_quietly(peer)  # it was restarted, perhaps without its peer book
        here = self._table.count_present(self.me.tag)
        few = here < min(pong.known, MAX_PEERS_PER_ANSWER) and not self._table.crowd
        if few and known.announcement.run == self.me.tag:
            await self._ask_quietly_for_peers(peer)

    # ---- waiting ----

    def _network_changed(self, health: Health) -> None:
        if health.state == "up":
            for wake in (self._contact_now, self._announce_now, self._read_now):
                wake.set()

    def _jittered(self, seconds: Seconds) -> Seconds:
        return seconds * self._rng.uniform(0.8, 1.2)

    async def _woken(self, event: asyncio.Event, seconds: Seconds) -> bool:
        """Wait about `seconds`, or until the event is set. Returns True when it was set."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._jittered(seconds)):
                await event.wait()
        was_set = event.is_set()
        event.clear()
        return was_set
