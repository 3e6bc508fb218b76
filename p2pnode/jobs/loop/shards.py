"""Shards of a loop's data (`share=`): this node offers its own, passes some on, and gives the loop what arrives.

Only members whose loops share data take part; each is asked once whether it does. A loop's node does not see the losses
of samples, so shards go where labels are missing, and else by chance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ...circles.members import Members
from ...discovery.link_rate import LinkRate
from ...network.base import Payload
from ...runtime.routes import Routes
from ...shards.driver import ShardDriver
from ...shards.messages import GetNeeds, GetShard, NeedsAre, SyncShards
from ...shards.route import ShardView
from ...shards.rows import listed, row_range
from ...shards.samples import SampleColumn
from ...shards.shipping import ShardShipping
from ...shards.visits import latest_by_model
from ...similarity.driver import PeerSimilarity
from ...wire.errors import LocalProblem, NetworkDown, PeerError, PeerRefused
from ...wire.ids import PeerId
from ...wire.messages import Message
from ...wire.status import ShardRow
from ...wire.types import Seconds
from ..contract import JobContext
from ..model.own_shards import own_shards, reading
from .plan import LoopPlan
from .shared_data import KEPT_BYTES, SharedData

LOOK_EVERY: Seconds = 1.0
ASK_AGAIN: Seconds = 15.0  # a member that shares no data, or has not read them yet
ASK_TIMEOUT: Seconds = 5.0

WIDEN = "; the founder's data set can name all classes by its attribute `classes`"

Counts = NDArray[np.float64]


class LoopShards:
    """The shards of one loop. Nothing is answered before `run` has read the data. Implements `ShardUse`."""

    def __init__(
        self,
        context: JobContext,
        plan: LoopPlan,
        data: SharedData,
        members: Members,
        similarity: PeerSimilarity,
        link: LinkRate,
        max_disk: int | None,
    ) -> None:
        services, calls = context.services, context.calls
        self.ready = False  # the user's data are cut into shards
        self.taught: list[float] = []  # nobody measures it here
        self.received_bytes = 0
        self.unusable: dict[str, str] = {}  # shards that are kept and not given to the loop, with the reason
        self._services = services
        self._calls = calls
        self._plan = plan
        self._data = data
        self._members = members
        self._label = data.label_column
        self._limits = {column.name: (column.low, column.high) for column in plan.samples}
        self._counts: dict[str, Counts] = {}  # by shard, samples of each label
        self._own: set[str] = set()
        self._kept_back = 0  # own samples that no member would use
        self._kept_back_reason = ""
        self._given: set[str] = set()  # to the loop
        self._sharing: set[PeerId] = set()
        self._asked: dict[PeerId, Seconds] = {}
        layout = {column.name: SampleColumn(column.kind, column.shape) for column in plan.samples}
        room = KEPT_BYTES if max_disk is None else min(KEPT_BYTES, max_disk // 2)
        self.driver = ShardDriver(services, calls, layout, self._partners, room)
        self.shipping = ShardShipping(services, calls, self.driver, self, similarity, link)

    def _partners(self) -> list[PeerId]:
        return [peer for peer in self._members.in_run() if peer in self._sharing]

    # ---- life ----

    async def _start(self) -> None:
        """Cut the user's data into shards, which may take a while, and take in what is on disk."""
        await self._services.seams.disk(self._bring)
        if self._kept_back:
            text = f"{self._kept_back:,} samples of share= do not travel, because {self._kept_back_reason}"
            self._services.events.say("shards", f"{text}{WIDEN}", warning=True)
        await self.driver.start()
        self.ready = True
        await self._take_in()

    def _bring(self) -> None:
        """Heavy."""
        data, seed = self._data.data(), int(self._plan.layout[:8], 16)
        try:
            for shard, columns in own_shards(data, row_range(0, len(data)), seed):
                reason = beyond(columns, self._limits)
                if reason:
                    self._kept_back, self._kept_back_reason = self._kept_back + len(shard), reason
                    continue
                self._own.add(shard.id)
                self._count(shard.id, columns)
                self.driver.add_own(shard.id, reading(data, listed(shard.indices)))
        except ValueError as problem:
            self._services.events.say("shards", f"share= {problem}; no more of it travels", warning=True)

    async def run(self) -> None:
        """Share and receive until cancelled."""
        await self._start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.driver.run())
            group.create_task(self.shipping.run())
            while True:
                await self._find_partners()
                await self._take_in()
                await asyncio.sleep(LOOK_EVERY)

    async def _find_partners(self) -> None:
        """Ask members that are new, and now and then those that shared nothing."""
        now, present = self._services.seams.clock.monotonic(), set(self._members.in_run())
        self._sharing &= present
        self._asked = {peer: at for peer, at in self._asked.items() if peer in present}
        for peer in sorted(present - self._sharing):
            if now - self._asked.get(peer, -ASK_AGAIN) < ASK_AGAIN:
                continue
            self._asked[peer] = now
            try:
                await self._calls.ask(peer, GetNeeds(), NeedsAre, ASK_TIMEOUT)
                self._sharing.add(peer)
            except (PeerError, NetworkDown):
                continue

    # ---- arrivals ----

    async def _take_in(self) -> None:
        """Give the loop the samples that have arrived."""
        arrived = [shard for shard in self.driver.ids() if shard not in self._own and shard not in self._given]
        for shard in arrived:
            self._given.add(shard)
            try:
                columns = await self._services.seams.disk(lambda shard=shard: self._read(shard))  # type: ignore[misc]
            except (KeyError, LocalProblem):
                self._given.discard(shard)
                continue
            except ValueError as problem:
                self._refuse(shard, str(problem))
                continue
            row = self.driver.row(shard)
            if not self._data.add(columns):
                self._refuse(shard, f"{KEPT_BYTES >> 20} MB of samples of others are in memory already")
                continue
            self.received_bytes += row.size_bytes
            self._services.events.say("received", f"shard {shard[:8]}: {row.samples} samples, in swarm.data now")

    def _read(self, shard: str) -> dict[str, NDArray[Any]]:
        """Heavy. A received shard's samples; ValueError when they have numbers that the run's data have not."""
        columns = {name: np.array(column) for name, column in self.driver.read(shard).items()}
        reason = beyond(columns, self._limits)
        if reason:
            raise ValueError(reason)
        self._count(shard, columns)
        return columns

    def _refuse(self, shard: str, reason: str) -> None:
        self.unusable[shard] = f"not used: {reason}"
        self._services.events.say("shards", f"shard {shard[:8]} is {self.unusable[shard]}", warning=True)

    def _count(self, shard: str, columns: Mapping[str, NDArray[Any]]) -> None:
        classes = int(self._limits[self._label][1]) + 1 if self._label else 0
        if 0 < classes <= 1024:
            labels = np.clip(columns[self._label].astype(np.int64), 0, classes - 1)
            self._counts[shard] = np.bincount(labels, minlength=classes).astype(np.float64)

    # ---- what shipping asks for (ShardUse) ----

    def view(self, shard: str) -> ShardView:
        visits, size = latest_by_model(self.driver.history(shard)), self.driver.row(shard).size_bytes
        return ShardView(shard, size, float("nan"), self._counts.get(shard), visits)

    def visited(self) -> tuple[list[str], list[str]]:
        """The shards that the loop can train on, and those that it cannot yet."""
        here = self.driver.ids()
        usable = (self._own | self._given) - self.unusable.keys()
        return [shard for shard in here if shard in usable], [shard for shard in here if shard not in usable]

    def label_counts(self) -> Counts | None:
        counts = [self._counts[shard] for shard in self.visited()[0] if shard in self._counts]
        return np.sum(counts, axis=0) if counts else None

    # ---- views ----

    def rows(self) -> tuple[ShardRow, ...]:
        shown = [self.driver.row(shard) for shard in self.driver.ids()]
        reasons = {**self.shipping.reasons, **self.unusable}
        return tuple(replace(row, reason=reasons.get(row.id, "")) for row in shown)


def beyond(columns: Mapping[str, NDArray[Any]], limits: Mapping[str, tuple[float, float]]) -> str:
    """Why samples cannot be used in a run, because of their numbers; "" when they can."""
    for name, column in columns.items():
        low, high = limits[name]
        if not (low <= float(column.min()) and float(column.max()) <= high):  # NaN is neither
            return f"{name} has numbers beyond {low:g} to {high:g}, which the founder's data have"
    return ""


def shard_routes(shards: LoopShards | None) -> Routes:
    """What peers may ask about data. A loop that shares none, or not yet, says so."""

    def sharing() -> LoopShards:
        if shards is None or not shards.ready:
            raise PeerRefused("no data", "this node's loop shares no data")
        return shards

    async def sync(peer: PeerId, request: SyncShards) -> Message:
        return await sharing().driver.answer(peer, request)

    async def payload(peer: PeerId, request: GetShard) -> Payload:
        return await sharing().driver.payload(peer, request)

    return Routes({SyncShards: sync, GetNeeds: lambda *asked: sharing().shipping.needs(*asked)}, {GetShard: payload})
