"""The pipeline job of one node: it serves blocks, drives micro-batches through those of all, or both.

serve     hold a span of blocks, answer calls, step; move where a block is missing or slow
drive     micro-batches of own data through the servers
share     each block with those who hold it too, as a delta set of its own
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ...config.until import Until
from ...runtime.routes import Routes
from ...tasks.data import Data
from ...training.progress import Reached, reached
from ...wire.errors import PeerRefused
from ...wire.ids import PeerId
from ...wire.messages import JobAnnouncement, Message
from ...wire.status import ExchangeRow, JobStatus
from ...wire.types import Seconds
from ..contract import Job, JobContext, JobPace, own_seed
from .driver import PipelineDriver
from .local_blocks import ENDS, LocalBlocks, ModelOutline
from .messages import Backward, Forward, Settle
from .plan import PipelineOptions, PipelinePlan
from .routing import ServerSight
from .server import SpanServer
from .shared_parts import SharedParts, part_name
from .spans import ServerFacts, SpanMove, choose_span, missing, next_move, read_facts, write_facts
from .status import pipeline_status

LOOK_AROUND: Seconds = 5.0  # that a newcomer waits to hear what others hold
LOOK_EVERY: Seconds = 1.0
SETTLE: Seconds = 3.0  # for which a move must stay the right one, so that what others announced has come
STAY: Seconds = 15.0  # before a server moves for a gain
ANNOUNCE_EVERY: Seconds = 5.0  # drivers leave out a server that failed until it announces itself anew
GRACE: Seconds = 60.0  # after a run was founded, in which it is no news that blocks begin at their first weights


class PipelineJob(Job):
    """A model that is divided among the members of a run."""

    def __init__(
        self,
        context: JobContext,
        plan: PipelinePlan,
        options: PipelineOptions,
        outline: ModelOutline,
        capacity: int,
        data: tuple[Data, Data] | None,
    ) -> None:
        """`capacity`: blocks that this node may hold; `data`: to train and to test on, of a node that drives."""
        super().__init__(context)
        self.plan = plan
        self.reason = ""  # why it holds the blocks it holds
        self._services = context.services
        self._me = context.services.identity.peer_id
        self._clock = context.services.seams.clock
        self.parts = SharedParts(context, plan, LocalBlocks(outline), self._holders, options.train.max_disk)
        self.server = SpanServer(context, plan, self.parts, capacity) if options.serves else None
        self.driver: PipelineDriver | None = None
        if data is not None:
            self.driver = PipelineDriver(
                context, plan, options, self.parts, data, self.server, self._sights, self._drivers, own_seed(context)
            )
        self._until: Until | None = options.train.until
        self._begun = self._clock.monotonic()
        self._moved: Seconds = self._begun
        self._wanted: tuple[SpanMove, Seconds] | None = None  # a move of this node that is due, and since when
        self._announced: tuple[bytes, Seconds] = (b"", self._begun)
        self._leaving = False
        self.routes = self.parts.routes.plus(
            Routes({Forward: self._answer, Backward: self._answer, Settle: self._answer})
        )

    # ---- who does what ----

    def table(self) -> dict[str, ServerFacts]:
        """What all members announce, this node included."""
        found: dict[str, ServerFacts] = dict(self._others())
        found[self._me] = self.facts()
        return found

    def facts(self) -> ServerFacts:
        """What this node announces. One that leaves has no speed, so that others take its blocks over."""
        drives = self.driver is not None
        if self.server is None:
            return ServerFacts(drives=drives)
        facts = self.server.facts(drives)
        return replace(facts, speed=0.0) if self._leaving else facts

    def _others(self) -> dict[str, ServerFacts]:
        found = {}
        for peer in self._services.table.doing(self.context.calls.run, self.name):
            facts = read_facts(peer.announcement.job(self.name).state, self.plan.blocks)
            if facts is not None:
                found[str(peer.id)] = facts
        return found

    def _holders(self, part: str) -> list[PeerId]:
        """The other members that hold a part."""
        found = []
        for peer, facts in self._others().items():
            ends = part == part_name(ENDS) and facts.drives
            block = any(part == part_name(number) for number in range(facts.span.first, facts.span.stop))
            if ends or block:
                found.append(PeerId(peer))
        return found

    def _sights(self) -> dict[str, ServerSight]:
        """All servers, with a stamp that rises with each announcement."""
        found = {}
        for peer, facts in self._others().items():
            known = self._services.table.get(PeerId(peer))
            if known is not None and facts.span.length:
                found[peer] = ServerSight(facts.span, known.record.expiry, known.latency or 0.0)
        if self.server is not None and self.server.span.length:
            found[self._me] = ServerSight(self.server.span, self._clock.monotonic())
        return found

    def _drivers(self) -> int:
        return sum(facts.drives for facts in self.table().values())

    # ---- life ----

    async def run(self) -> str:
        self._begun = self._clock.monotonic()
        await self._look_around()
        async with asyncio.TaskGroup() as group:
            loops = [group.create_task(self.parts.keep_rounds())]
            if self.driver is not None:
                await self.parts.get([ENDS], group)
            if self.server is not None:
                await self._take_first_span(self.server, group)
                loops.append(group.create_task(self.server.keep_looking()))
            loops.append(group.create_task(self._keep_span(group)))
            if self.driver is not None:
                loops.append(group.create_task(self.driver.run()))
            why = await self._until_goal()
            for task in loops:
                task.cancel()
            await self.parts.close(list(self.parts.open))
        return why

    async def _look_around(self) -> None:
        """Wait until it is known what others hold, unless there is nobody."""
        end = self._clock.monotonic() + LOOK_AROUND
        while True:
            if self.context.founder == self._me or self._others() or self._clock.monotonic() >= end:
                return
            await asyncio.sleep(0.25)

    async def _until_goal(self) -> str:
        """Wait until the user's goal is reached; returns the reason."""
        while True:
            why = self._goal_reached()
            if why:
                return why
            await asyncio.sleep(LOOK_EVERY)

    def _goal_reached(self) -> str:
        if self._until is None:
            return ""
        seconds = self._clock.monotonic() - self._begun
        ends = self.parts.open.get(ENDS)
        steps = 0 if ends is None else ends.held.steps
        return reached(self._until, Reached(0, seconds, None, None, 0, steps))

    # ---- the span ----

    async def _take_first_span(self, server: SpanServer, group: asyncio.TaskGroup) -> None:
        span, reason = choose_span(self._me, server.facts(False), list(self._others().values()), self.plan.blocks)
        await self._hold(server, SpanMove(self._me, span, reason), group)

    async def _hold(self, server: SpanServer, move: SpanMove, group: asyncio.TaskGroup) -> None:
        begun = await server.hold(move.span, group)
        self.reason, self._moved = move.reason, self._clock.monotonic()
        old = self._services.clock.now() - self.context.created > GRACE
        lost = "first weights" in begun and old
        text = f"serves blocks {move.span}: {move.reason}" + (f" ({begun})" if begun else "")
        self._services.events.say("pipeline", text, warning=lost)
        await self._announce()

    async def _keep_span(self, group: asyncio.TaskGroup) -> None:
        """Move where that helps, and announce what has changed."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            move = self._due_move()
            if move is not None and self.server is not None:
                self._wanted = None
                await self._hold(self.server, move, group)
            elif self._has_changed():
                await self._announce()
            elif self._clock.monotonic() - self._announced[1] >= ANNOUNCE_EVERY:
                self._announced = (self._announced[0], self._clock.monotonic())
                await self.context.membership.announce_to(self.context.members())  # and see who does not answer

    def _due_move(self) -> SpanMove | None:
        """A move of this node that has been the right one for a while."""
        table, now = self._reliable(), self._clock.monotonic()
        found = next_move(table, self.plan.blocks)
        if found is None or found.peer != self._me or self._leaving:
            self._wanted = None
            return None
        if self._wanted is None or self._wanted[0].span != found.span:
            self._wanted = (found, now)
        urgent = bool(missing(table.values(), self.plan.blocks))
        settled = now - self._wanted[1] >= SETTLE and (urgent or now - self._moved >= STAY)
        return found if settled else None

    def _reliable(self) -> dict[str, ServerFacts]:
        """The table in which who did not answer this node's latest call counts as leaving."""
        found = self.table()
        for peer, facts in found.items():
            known = self._services.table.get(PeerId(peer))
            if known is not None and known.failures:
                found[peer] = replace(facts, speed=0.0)
        return found

    def _has_changed(self) -> bool:
        """Whether what this node announces has changed so much that all should hear of it."""
        known, facts = read_facts(self._announced[0], self.plan.blocks), self.facts()
        if known is None or known.span != facts.span:
            return True
        return not 0.5 <= (known.speed + 1e-9) / (facts.speed + 1e-9) <= 2.0

    async def _announce(self) -> None:
        self._announced = (self.announcement().state, self._clock.monotonic())
        await self.context.membership.tell(self.context.members())

    @property
    def unreplicated(self) -> int:
        """Blocks that no other server holds."""
        if self.server is None:
            return 0
        alone = set(missing(self._others().values(), self.plan.blocks))
        return sum(block in alone for block in range(self.server.span.first, self.server.span.stop))

    async def hand_over(self, limit: Seconds) -> None:
        """Before leaving: let others take over the blocks that only this node holds."""
        if self.server is None or not self.server.span.length:
            return
        self._leaving, end = True, self._clock.monotonic() + limit
        await self._announce()
        while self.unreplicated and any(facts.capacity for facts in self._others().values()):
            if self._clock.monotonic() >= end:
                return
            await asyncio.sleep(0.25)

    # ---- disk, peers and views ----

    async def save(self, limit: Seconds | None = None) -> None:
        await self.parts.save(limit)

    async def _answer(self, peer: PeerId, request: Forward | Backward | Settle) -> Message:
        if self.server is None:
            raise PeerRefused("not here", "this node serves no blocks")
        if isinstance(request, Forward):
            return await self.server.forward(peer, request)
        if isinstance(request, Backward):
            return await self.server.backward(peer, request)
        return await self.server.settle(peer, request)

    def announcement(self) -> JobAnnouncement:
        return JobAnnouncement(self.name, state=write_facts(self.facts()))

    def pace(self) -> JobPace | None:
        if self.driver is None or self.driver.waiting_for:
            return None
        return JobPace(self.driver.counts.done, self.driver.samples, self.driver.rate(self._clock.monotonic()))

    def exchanges(self) -> Sequence[ExchangeRow]:
        return [row for part in self.parts.open.values() for row in part.shared.exchanges()]

    def status(self) -> JobStatus:
        return pipeline_status(self, self._clock.monotonic())
