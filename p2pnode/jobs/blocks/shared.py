"""One block at one node: a part of a model that its holders keep equal, by a merge policy of its own.

A block is shared like a whole model (jobs/model): exchanges, snapshots, a log on disk. Its name takes the place of a
circle's name in messages, so nothing of one block can get into another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
from blake3 import blake3
from numpy.typing import NDArray

from ...circles.members import CurrentCircle, Members
from ...compression.weights import Floats, to_units
from ...discovery.table import PeerTable
from ...merging.policy import PolicySetup
from ...merging.registry import policy_named
from ...similarity.partners import partner_settings, without_partner_settings
from ...storage.checkpoints import Arrays
from ...wire.errors import UsageError
from ...wire.ids import PeerId
from ...wire.status import JobStatus
from ...wire.types import Seconds
from ..contract import JobContext
from ..model.job import ModelJob, SharingSetup
from .layout import ModelPart

ASKS = 3  # how often members are asked for a block before it begins at its first weights
ASK_PAUSE: Seconds = 1.0
MOST_ASKED = 64  # members that are asked for a block

Begun = Literal["resumed", "caught up", "first weights"]


@dataclass(frozen=True)
class BlockSetup:
    """How the blocks of a model are shared: what all members agreed on."""

    genesis: bytes  # hash of the model's first weights
    policy: str
    settings: Mapping[str, float]
    seed: int
    round_seconds: Seconds
    planned_steps: int = 0
    max_disk: int | None = None


class NothingSaved:
    """The local steps of a block are saved with the path that trains it (Resumable)."""

    def state(self) -> Arrays:
        return {}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        pass


class Holders(Members):
    """Those who train a block, in place of a circle's members."""

    def __init__(
        self, table: PeerTable, run: str, job: str, circle: CurrentCircle, shares_all: bool, find: FindHolders
    ) -> None:
        super().__init__(table, run, job, circle, shares_all)
        self._find = find

    def circles(self) -> dict[PeerId, str]:
        return dict.fromkeys(self._find(self.circle.name), self.circle.name)


FindHolders = Callable[[str], list[PeerId]]  # the peers that train a block, by its name


def block_lineage(genesis: bytes, block: str) -> bytes:
    """The lineage of a block, given the hash of the model's first weights."""
    return blake3(b"p2pnode block 1\0" + msgspec.msgpack.encode((genesis, block))).digest()


class SharedBlock(ModelJob):
    """A block that this node holds."""

    def __init__(
        self, context: JobContext, block: str, part: ModelPart, first: Floats, setup: BlockSetup, find: FindHolders
    ) -> None:
        """`first` are the block's first weights. UsageError when the policy does not take its settings."""
        self.block = block
        self.part = part
        self._find_holders = find
        lineage = block_lineage(setup.genesis, block)
        origin = PolicySetup(
            genesis=to_units(first),
            identity=context.services.identity,
            lineage=lineage.hex(),
            model=context.name,
            layout=part.layout.hash,
            settings=without_partner_settings(setup.settings),
            seed=setup.seed,
            layers=part.layout.layer_sizes,
            planned_steps=setup.planned_steps,
        )
        try:
            partners, policy = partner_settings(setup.settings), policy_named(setup.policy)(origin)
        except ValueError as error:
            raise UsageError(f"the run cannot be learned with these settings: {error}") from None
        sharing = SharingSetup(lineage, "shared", partners, setup.round_seconds, block, setup.max_disk)
        super().__init__(replace(context, name=f"{context.name}/blocks/{block}"), policy, sharing, NothingSaved())

    def make_members(self) -> Members:
        calls, circle = self.context.calls, self._current_circle
        shares_all = self.policy.can.entries is not None
        return Holders(self._services.table, calls.run, calls.job, circle, shares_all, self._find_holders)

    async def begin(self, others: list[PeerId]) -> Begun:
        """Go on from disk, and from what a holder has since, or whoever of the `others` keeps it; else begin anew."""
        found: Begun = "resumed" if await self.resume() else "first weights"
        if found == "resumed" and self.members.in_circle():
            return found  # exchanges bring what is missing
        for asked in range(ASKS):
            if asked:
                await asyncio.sleep(ASK_PAUSE)
            holders = self.members.in_circle()
            if await self._catch_up(holders or others, found == "first weights"):
                found = "caught up"
                break
            if not holders:
                break
        if found != "resumed":
            await self.save()
        return found

    async def _catch_up(self, members: list[PeerId], empty: bool) -> bool:
        """Take what members have that this node lacks; a snapshot only where it has nothing itself."""
        for member in members[:MOST_ASKED]:  # most of them may not have it, so each is asked by itself
            if await self.partner_exchange.catch_up_by_entries([member]):
                return True
        return empty and bool(members) and await self.snapshots.adopt_from(members[:MOST_ASKED])

    async def run(self) -> str:
        """Exchange with other holders until cancelled."""
        self.exchange_loop.wake()
        await self.exchange_loop.run()
        return ""

    def status(self) -> JobStatus:
        return JobStatus()
