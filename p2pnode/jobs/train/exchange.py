"""Exchanges with partners: asking and answering. Beside training, which never waits for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from ...circles.advice import MAX_CIRCLE
from ...circles.bridging import Bridging
from ...circles.current import CurrentCircle
from ...discovery.link_rate import LinkRate
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
from ...wire.run import RunAccess
from ...wire.types import Seconds
from .options import TrainSetup

MODEL = "main"  # logs and stores are keyed by model: a node may later train several
PATIENCE: Seconds = 0.5  # with a partner that does not answer, before the next is asked
PARTNERS = 3
EXCHANGE_TIMEOUT: Seconds = 10.0
EXCHANGE_PERIOD: Seconds = 5.0


class ExchangeLoop:
    """One model's talk with the others of its circle."""

    def __init__(
        self,
        services: Services,
        access: RunAccess,
        policy: Policy,
        train_progress: TrainProgress,
        own: CurrentCircle,
        bridging: Bridging,
        setup: TrainSetup,
    ) -> None:
        self._services = services
        self._access = access
        self._policy = policy
        self._train_progress = train_progress
        self.calls = JobCalls(services.calls, access, services.identity.peer_id, MODEL)
        self.snapshots = Snapshots(services, self.calls, policy, own)
        self.own = own
        self.bridging = bridging
        self.likeness = PeerSimilarity(services, self.calls, setup.plan.aim, setup.partners)
        self.link = LinkRate()
        self.age: Callable[[], float] = float  # of the run, in rounds
        self.own_record: Callable[[], SignedRecord | None] = lambda: None
        self._now = asyncio.Event()
        self._busy: set[PeerId] = set()  # partners that were asked and have not answered yet
        self._swap: asyncio.Task[None] | None = None

    # ---- who ----

    def run_members(self) -> list[PeerId]:
        """Peers of the run that learn, of whichever circle."""
        return [peer.id for peer in self._services.table.learners(self._access.tag)]

    def members(self) -> list[PeerId]:
        """Peers of the same circle that are there; of the whole run when no circle is declared."""
        learners = self._services.table.learners(self._access.tag)
        return [peer.id for peer in learners if peer.announcement.circle == self.own.name]

    def elsewhere(self) -> list[PeerId]:
        """Those of the run whose work does not come here by itself: of other circles, where a circle shares all."""
        shared = self.members() if self._policy.can.entries is not None else []
        return [peer for peer in self.run_members() if peer not in shared]

    def circle(self) -> list[PeerId]:
        return self.members()[: MAX_CIRCLE - 1]

    def _possible(self) -> list[PeerId]:
        """Who may be a partner: our circle; of a large one some by lot, most likely who kept its part lately."""
        now, reputation = self._services.seams.clock.monotonic(), self._services.reputation
        members = [peer for peer in self.members() if not reputation.ignored(peer, now)]
        return self.likeness.partner_record.draw(members, MAX_CIRCLE - 1, self._services.seams.rng)

    # ---- asking ----

    def soon(self) -> None:
        """There is something new to tell."""
        self._now.set()

    async def keep(self) -> None:
        """Exchange whenever there is something new, and now and then anyway, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EXCHANGE_PERIOD):
                        await self._now.wait()
                self._now.clear()
                await self._services.limiter.free()
                await self._begin(group)

    async def once(self) -> None:
        """Exchange now, and wait until that is done."""
        async with asyncio.TaskGroup() as group:
            await self._begin(group)

    async def _begin(self, group: asyncio.TaskGroup) -> None:
        """One exchange with each of up to three partners; now and then one of them is of another circle.

        Who is slow goes on in `group` and holds up nobody; nothing else is asked of it meanwhile.
        """
        rounds, age = self._train_progress.rounds, self.age()
        await self.likeness.look(self._possible(), rounds, age)
        circle = self._possible()
        beyond = [peer for peer in self.bridging.beyond(self.own.name) if peer not in self._busy]
        free = [peer for peer in circle if peer not in self._busy]
        choices = self.likeness.choose(free, beyond, rounds, age, self.bridging.often)
        inside = [choice.peer for choice in choices if not choice.bridge]
        others = [self._services.table.get(choice.peer) for choice in choices if choice.bridge]
        for peer in others:
            if peer is not None:
                group.create_task(self._alone(peer.id, partial(self.bridging.ask, peer, len(circle) + 1)))
        for partner in inside:  # one after the other, so that the same entries do not come from all of them
            if self._services.limiter.why:
                break
            exchange = self._alone(partner, partial(self._exchange, partner))
            await asyncio.wait([group.create_task(exchange)], timeout=PATIENCE)
        await self.snapshots.catch_up(circle)
        if self._swap is None or self._swap.done():
            self._swap = group.create_task(self.likeness.swap(self.own_record))

    async def _alone(self, partner: PeerId, talk: Callable[[], Awaitable[None]]) -> None:
        """One thing at a time with a peer."""
        self._busy.add(partner)
        try:
            await talk()
        finally:
            self._busy.discard(partner)

    async def _exchange(self, partner: PeerId) -> None:
        """One exchange. A partner that breaks the format loses standing; whatever happens, training goes on."""
        circle = self.own.name
        try:
            clock = self._services.seams.clock
            begun, question = clock.monotonic(), self._policy.ask(partner)
            body = await self._ask(partner, question, push=False)
            if self.own.name != circle:
                return  # gone to another one since; what came is not for its set
            push = self._policy.take(partner, body)
            if push:
                await self._ask(partner, push, push=True)
            self.likeness.partner_record.note(partner, succeeded=True)
            self._train_progress.note_exchange(partner, len(question) + len(push), len(body), clock.time())
            known = self._services.table.get(partner)
            self.link.note(len(body) + len(push), clock.monotonic() - begun, None if known is None else known.latency)
        except ValueError as fault:
            self.likeness.partner_record.note(partner, succeeded=False)
            self._services.fault(partner, f"exchange: {fault}")
        except PeerError:
            self.likeness.partner_record.note(partner, succeeded=False)
        except NetworkDown:
            pass

    async def catch_up_by_entries(self, members: list[PeerId]) -> bool:
        """From the genesis to where a member is; False when a snapshot costs less, or nobody answers."""
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
        """Take a member's entries until nothing is missing, as long as that brings something and stays cheap."""
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
        request = Exchange(body, push, self.own.name)
        return (await self.calls.ask(partner, request, Exchanged, EXCHANGE_TIMEOUT)).body

    # ---- answering ----

    def answer(self, peer: PeerId, request: Exchange) -> Exchanged:
        """What a partner gets that asks or pushes; PeerRefused or PeerMisbehaved when it may not, or talks nonsense."""
        self.own.check(request.circle)
        try:
            if request.push:
                self._policy.take(peer, request.body)
                return Exchanged()
            return Exchanged(self._policy.answer(peer, request.body))
        except ValueError as fault:
            raise PeerMisbehaved(f"exchange: {fault}") from None
