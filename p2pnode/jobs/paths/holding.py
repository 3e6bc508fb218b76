"""The blocks at one node: those of the paths it trains, and copies it keeps in case a path's last worker leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable

from ...merging.messages import Exchange, Exchanged
from ...merging.snapshots.messages import GetChunks, GetKept, GetSnapshot, SnapshotRequest
from ...network.base import Payload, cancel_and_wait
from ...runtime.routes import Routes
from ...wire.errors import PeerRefused
from ...wire.ids import PeerId
from ..blocks.joined import JoinedBlocks
from ..blocks.shared import Begun, BlockSetup, SharedBlock
from ..contract import JobContext
from .assign import Worker, read_worker
from .grid import ENDS
from .setup import PathsSetup


class HeldBlocks:
    """Opens blocks, shares them with those who train them too, and answers for all that are here."""

    def __init__(self, context: JobContext, setup: PathsSetup, max_disk: int | None) -> None:
        plan = setup.plan
        self.open: dict[str, SharedBlock] = {}
        self._context = context
        self._setup = setup
        self._grid = plan.grid
        self._sharing: dict[str, asyncio.Task[str]] = {}
        self._opening = asyncio.Lock()  # one at a time: training and keeping copies may want the same block
        self._how = BlockSetup(
            bytes.fromhex(plan.train.genesis),
            plan.train.policy,
            plan.train.settings,
            plan.train.seed,
            plan.train.round_seconds,
            plan.train.steps,
            max_disk,
        )
        self.routes = Routes(
            {Exchange: self._answer}, {GetSnapshot: self._stream, GetChunks: self._stream, GetKept: self._stream}
        )

    # ---- who has what ----

    def workers(self) -> dict[PeerId, Worker]:
        """What other members announce; those that have announced nothing yet are left out."""
        services, name, found = self._context.services, self._context.name, dict[PeerId, Worker]()
        for peer in services.table.doing(self._context.calls.run, name):
            worker = read_worker(peer.announcement.job(name).state, self._grid.paths)
            if worker is not None:
                found[peer.id] = worker
        return found

    def holders(self, block: str) -> list[PeerId]:
        """The members that train a block."""
        owners = self._grid.owners.get(block, ())
        return [peer for peer, worker in self.workers().items() if worker.paths & set(owners)]

    # ---- opening and closing ----

    async def joined(self, path: int) -> tuple[JoinedBlocks, list[Begun]]:
        """The blocks of a path, and where each went on from."""
        opened = [await self.get(block) for block in self._grid.blocks(path)]
        return JoinedBlocks([block for block, _ in opened]), [begun for _, begun in opened]

    async def get(self, name: str) -> tuple[SharedBlock, Begun]:
        """A block as far as anybody has got with it."""
        async with self._opening:
            if name in self.open:
                return self.open[name], "resumed"
            setup, context = self._setup, self._context
            part = setup.parts.ends if name == ENDS else setup.parts.levels[level_of(name)]
            block = SharedBlock(context, name, part, part.take(setup.genesis), self._how, self.holders)
            begun = await block.begin(context.members())
            self.open[name] = block
            return block, begun

    def share(self, names: Iterable[str], group: asyncio.TaskGroup) -> None:
        """Exchange these blocks with others that train them, and no others."""
        wanted = set(names)
        for name in [name for name in self._sharing if name not in wanted]:
            self._sharing.pop(name).cancel()
        for name in wanted - set(self._sharing):
            self._sharing[name] = group.create_task(self.open[name].run())

    async def refresh(self, name: str) -> None:
        """Bring a copy up to date that this node only keeps, and save it."""
        block, begun = await self.get(name)
        if name in self._sharing:
            return
        holders = self.holders(name)
        if begun == "resumed" and holders:
            entries = block.policy.can.entries
            if entries is None or entries.needs_snapshot:
                await block.snapshots.adopt_from(holders)
            else:
                await block.exchange_loop.once()
        await block.save()

    async def close(self, names: Iterable[str]) -> None:
        """Save blocks that are of no more use here, and forget them; they stay on disk."""
        for name in names:
            task = self._sharing.pop(name, None)
            if task is not None:
                with contextlib.suppress(asyncio.CancelledError):
                    await cancel_and_wait(task)
            block = self.open.pop(name, None)
            if block is not None:
                await block.save()

    # ---- answering ----

    def _answer(self, peer: PeerId, request: Exchange) -> Exchanged:
        block = self.open.get(request.circle)
        if block is None:
            raise PeerRefused("unknown block", "that block is not here")
        return block.partner_exchange.answer(peer, request)

    async def _stream(self, peer: PeerId, request: SnapshotRequest) -> Payload:
        for block in self.open.values():
            asked = isinstance(request, GetSnapshot) and request.circle == block.block
            if asked or (not isinstance(request, GetSnapshot) and block.snapshots.offers.has(request.snapshot)):
                return await block.snapshots.payload(peer, request)
        raise PeerRefused("unknown block", "that block is not here")


def level_of(block: str) -> int:
    """The level that a block of a level is of."""
    return int(block.partition(".")[0].removeprefix("level"))
