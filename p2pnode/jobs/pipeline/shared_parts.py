"""The parts of the model at one node: opened from disk or from others, shared with those who hold them, in rounds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

from ...compression.weights import Floats
from ...merging.messages import Exchange, Exchanged
from ...merging.policy import RoundFacts
from ...merging.snapshots.messages import GetChunks, GetKept, GetSnapshot, SnapshotRequest
from ...network.base import Payload, cancel_and_wait
from ...runtime.routes import Routes
from ...wire.errors import PeerRefused
from ...wire.ids import PeerId
from ..blocks.shared import Begun, BlockSetup, FindHolders, SharedBlock
from ..contract import JobContext
from .local_blocks import ENDS, HeldPart, LocalBlocks
from .plan import PipelinePlan


def part_name(number: int) -> str:
    """The name under which holders of a part find each other."""
    return "ends" if number == ENDS else f"block{number}"


@dataclass
class OpenPart:
    """One part that is open here."""

    shared: SharedBlock
    held: HeldPart
    begun: Floats  # where the local steps of this round began
    steps_at: int = 0  # steps of the optimizer when the round began
    samples: int = 0  # of this round
    loss: float = 0.0  # mean of this round, where it is known
    holders: int = 1  # nodes that hold it, this one included
    rate: float = 1.0  # factor on the learning rate, by the number of holders
    sharing: asyncio.Task[str] | None = None

    def look_around(self) -> None:
        """See how many hold it now. The compute thread reads the result."""
        self.holders = len(self.shared.members.in_circle()) + 1
        self.rate = self.shared.policy.pace(self.holders).rate


class SharedParts:
    """Opens and closes parts, and publishes and merges what their optimizers did."""

    def __init__(
        self, context: JobContext, plan: PipelinePlan, held: LocalBlocks, find: FindHolders, max_disk: int | None
    ) -> None:
        train = plan.train
        self.held = held
        self.open: dict[int, OpenPart] = {}
        self._context = context
        self._compute = context.services.seams.compute
        self._find = find
        self._round_seconds = train.round_seconds
        self._how = BlockSetup(
            bytes.fromhex(train.genesis),
            train.policy,
            train.settings,
            train.seed,
            train.round_seconds,
            train.steps,
            max_disk,
        )
        self.routes = Routes(
            {Exchange: self._answer}, {GetSnapshot: self._stream, GetChunks: self._stream, GetKept: self._stream}
        )

    # ---- opening and closing ----

    async def get(self, numbers: Collection[int], group: asyncio.TaskGroup) -> dict[int, Begun]:
        """Open parts as far as anybody has got with them, and share them; returns where each went on from."""
        wanted = [number for number in numbers if number not in self.open]
        found: dict[int, Begun] = {}
        if not wanted:
            return found
        first = await self._compute(lambda: self.held.outline.first_weights(wanted))
        for number in wanted:
            name, part = part_name(number), self.held.outline.part(number)
            shared = SharedBlock(self._context, name, part, first.pop(number), self._how, self._find)
            found[number] = await shared.begin(self._context.members())
            start = shared.policy.start()
            held = await self._compute(partial(self.held.hold, number, start))
            self.open[number] = OpenPart(shared, held, start)
            self.open[number].look_around()
            self.open[number].sharing = group.create_task(shared.run())
        return found

    async def close(self, numbers: Collection[int]) -> None:
        """Save parts that are held no longer, and forget them; they stay on disk."""
        for number in numbers:
            part = self.open.pop(number, None)
            if part is None:
                continue
            await self._publish(part)
            await part.shared.exchange_loop.once()
            if part.sharing is not None:
                with contextlib.suppress(asyncio.CancelledError):
                    await cancel_and_wait(part.sharing)
            await part.shared.save()
            await self._compute(partial(self.held.release, number))

    # ---- rounds ----

    async def keep_rounds(self) -> None:
        """Publish and merge every part, once in a round, until cancelled."""
        while True:
            await asyncio.sleep(self._round_seconds)
            for number in sorted(self.open):
                part = self.open.get(number)
                if part is not None:
                    part.look_around()
                    await self._round(part)
                    await part.shared.save_if_due()

    async def _round(self, part: OpenPart) -> None:
        if part.held.steps > part.steps_at:
            await self._publish(part)
        else:
            await part.shared.merge_between_rounds()
            await self._go_on(part, part.begun)

    async def _publish(self, part: OpenPart) -> None:
        """Record and publish the steps since the round began, and merge. Steps go on meanwhile."""
        steps = part.held.steps - part.steps_at
        if steps <= 0:
            return
        peers = len(part.shared.members.active()) + 1
        budget = part.shared.partner_exchange.link.budget(self._round_seconds, peers)
        facts = RoundFacts(steps, part.loss, part.samples, peers, budget)
        part.steps_at, part.samples = part.held.steps, 0
        after = await self._compute(part.held.take)
        await part.shared.end_round(part.begun, after, facts)
        await self._go_on(part, after)

    async def _go_on(self, part: OpenPart, from_: Floats) -> None:
        """Move the weights by what others brought: steps that were made since `from_` stay."""

        def move() -> Floats:
            start = part.shared.policy.start()
            part.held.move(start - from_)
            return start

        part.begun = await self._compute(move)

    async def save(self, limit: float | None) -> None:
        for part in list(self.open.values()):
            await part.shared.save(limit)

    # ---- answering ----

    def _answer(self, peer: PeerId, request: Exchange) -> Exchanged:
        for part in self.open.values():
            if part.shared.block == request.circle:
                return part.shared.partner_exchange.answer(peer, request)
        raise PeerRefused("unknown block", "that block is not here")

    async def _stream(self, peer: PeerId, request: SnapshotRequest) -> Payload:
        for part in self.open.values():
            shared = part.shared
            asked = isinstance(request, GetSnapshot) and request.circle == shared.block
            if asked or (not isinstance(request, GetSnapshot) and shared.snapshots.offers.has(request.snapshot)):
                return await shared.snapshots.payload(peer, request)
        raise PeerRefused("unknown block", "that block is not here")
