"""Exchanges with partners while training goes on, which never waits for them.

`PartnerExchange` talks to one partner and answers those who ask; `ExchangeLoop` decides when, and with which partner.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from ...circles.advice import MAX_CIRCLE
from ...circles.bridging import Bridging
from ...circles.members import CurrentCircle, Members
from ...discovery.link_rate import LinkRate
from ...discovery.reputation import PartnerRecord
from ...discovery.services import Services
from ...merging.capabilities import SharesEntries
from ...merging.messages import Exchange, Exchanged
from ...merging.policy import Policy
from ...merging.snapshots.driver import Snapshots
from ...runtime.calls import JobCalls
from ...similarity.driver import PeerSimilarity
from ...training.progress import TrainProgress
from ...wire.errors import NetworkDown, PeerError, PeerMisbehaved
from ...wire.ids import PeerId
from ...wire.records import SignedRecord
from ...wire.types import Seconds

PATIENCE: Seconds = 0.5  # with a partner that does not answer, before the next is asked
PARTNERS = 3
EXCHANGE_TIMEOUT: Seconds = 10.0
EXCHANGE_PERIOD: Seconds = 5.0


class PartnerExchange:
    """Asks one partner at a time for what its policy shares, and answers partners that ask."""

    def __init__(
        self,
        services: Services,
        calls: JobCalls,
        policy: Policy,
        train_progress: TrainProgress,
        circle: CurrentCircle,
        partner_record: PartnerRecord,
    ) -> None:
        self.link = LinkRate()
        self.taken = 0  # how often a partner's answer or push was taken in
        self._services = services
        self._calls = calls
        self._policy = policy
        self._train_progress = train_progress
        self._circle = circle
        self._partner_record = partner_record

    async def exchange(self, partner: PeerId) -> None:
        """One exchange. A partner that breaks the format loses reputation; whatever happens, training goes on."""
        circle = self._circle.name
        try:
            clock = self._services.seams.clock
            begun, question = clock.monotonic(), self._policy.ask(partner)
            body = await self._ask(partner, question, push=False)
            if self._circle.name != circle:
                return  # this node has changed circles since: the answer is not for its new set
            push = self._policy.take(partner, body)
            self.taken += 1
            if push:
                await self._ask(partner, push, push=True)
            self._partner_record.note(partner, succeeded=True)
            self._train_progress.note_exchange(partner, len(question) + len(push), len(body), clock.time())
            known = self._services.table.get(partner)
            self.link.note(len(body) + len(push), clock.monotonic() - begun, None if known is None else known.latency)
        except ValueError as fault:
            self._partner_record.note(partner, succeeded=False)
            self._services.fault(partner, f"exchange: {fault}")
        except PeerError:
            self._partner_record.note(partner, succeeded=False)
        except NetworkDown:
            pass

    async def catch_up_by_entries(self, members: list[PeerId]) -> bool:
        """Go from the genesis to where a member is; False when a snapshot costs less, or nobody answers."""
        entries = self._policy.can.entries
        if entries is None:
            return False
        for member in self._services.seams.rng.sample(members, min(PARTNERS, len(members))):
            try:
                if await self._take_all(entries, member):
                    await self._services.seams.compute(entries.arrive)
                    return True
            except ValueError as fault:
                self._services.fault(member, f"exchange: {fault}")
            except (PeerError, NetworkDown):
                continue
        return False

    async def _take_all(self, entries: SharesEntries, member: PeerId) -> bool:
        """Take a member's entries until none is missing, as long as that makes progress and stays cheap."""
        left = entries.snapshot_bytes
        while left > 0:
            before = entries.digest()
            body = await self._ask(member, self._policy.ask(member), push=False)
            self._policy.take(member, body)
            if entries.same_as(body):
                return True
            if entries.digest() == before:
                return False
            left -= len(body)
        return False

    async def _ask(self, partner: PeerId, body: bytes, push: bool) -> bytes:
        request = Exchange(body, push, self._circle.name)
        return (await self._calls.ask(partner, request, Exchanged, EXCHANGE_TIMEOUT)).body

    def answer(self, peer: PeerId, request: Exchange) -> Exchanged:
        """The answer to a question or a push. PeerRefused when the peer may not ask, PeerMisbehaved for nonsense."""
        self._circle.check(request.circle)
        try:
            if request.push:
                self._policy.take(peer, request.body)
                self.taken += 1
                return Exchanged()
            return Exchanged(self._policy.answer(peer, request.body))
        except ValueError as fault:
            raise PeerMisbehaved(f"exchange: {fault}") from None


class ExchangeLoop:
    """Exchanges after each round with up to three partners, most of them of this node's circle."""

    def __init__(
        self,
        services: Services,
        members: Members,
        similarity: PeerSimilarity,
        partner_exchange: PartnerExchange,
        bridging: Bridging,
        snapshots: Snapshots,
        train_progress: TrainProgress,
        run_age: Callable[[], float],
        own_record: Callable[[], SignedRecord | None],
    ) -> None:
        """`run_age` gives the age of the run in rounds, `own_record` this node's announcement for others."""
        self._services = services
        self._members = members
        self._similarity = similarity
        self._partner_exchange = partner_exchange
        self._bridging = bridging
        self._snapshots = snapshots
        self._train_progress = train_progress
        self._run_age = run_age
        self._own_record = own_record
        self._wake = asyncio.Event()
        self._busy: set[PeerId] = set()  # partners that were asked and have not answered yet
        self._swap: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Exchange as soon as possible: there is something new."""
        self._wake.set()

    async def run(self) -> None:
        """Exchange whenever there is something new, and now and then anyway, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EXCHANGE_PERIOD):
                        await self._wake.wait()
                self._wake.clear()
                await self._services.limiter.free()
                await self._begin(group)

    async def once(self) -> None:
        """Exchange now, and wait until that is done."""
        async with asyncio.TaskGroup() as group:
            await self._begin(group)

    async def _begin(self, group: asyncio.TaskGroup) -> None:
        """One exchange with each of up to three partners; now and then one of them is of another circle.

        A slow partner goes on in `group` and holds up nobody; nothing else is asked of it meanwhile.
        """
        rounds, age = self._train_progress.rounds, self._run_age()
        await self._similarity.look(self._possible(), rounds, age)
        circle = self._possible()
        outside = [peer for peer in self._bridging.peers_of_other_circles() if peer not in self._busy]
        free = [peer for peer in circle if peer not in self._busy]
        choices = self._similarity.choose(free, outside, rounds, age, self._bridging.rate_factor)
        inside = [choice.peer for choice in choices if not choice.bridge]
        bridged = [self._services.table.get(choice.peer) for choice in choices if choice.bridge]
        for peer in bridged:
            if peer is not None:
                group.create_task(self._alone(peer.id, partial(self._bridging.ask, peer, len(circle) + 1)))
        for partner in inside:  # one after the other, so that the same entries do not come from all of them
            if self._services.limiter.resting:
                break
            exchange = self._alone(partner, partial(self._partner_exchange.exchange, partner))
            await asyncio.wait([group.create_task(exchange)], timeout=PATIENCE)
        await self._snapshots.catch_up(circle)
        if self._swap is None or self._swap.done():
            self._swap = group.create_task(self._similarity.swap(self._own_record))

    def _possible(self) -> list[PeerId]:
        """Possible partners: this node's circle, or a random part of a large one, reliable partners preferred."""
        now, reputation = self._services.seams.clock.monotonic(), self._services.reputation
        members = [peer for peer in self._members.in_circle() if not reputation.ignored(peer, now)]
        return self._similarity.partner_record.draw(members, MAX_CIRCLE - 1, self._services.seams.rng)

    async def _alone(self, partner: PeerId, talk: Callable[[], Awaitable[None]]) -> None:
        """Do one thing at a time with a peer."""
        self._busy.add(partner)
        try:
            await talk()
        finally:
            self._busy.discard(partner)
