"""The shards a node holds and keeps: on disk, among peers, and on their way. Never loses one that is its to keep.

shards.handoff decides what happens to a shard; this file carries it out. Training adds what the node brings, reads
what is
here, hears of arrivals, and asks for a shard to be given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from ..discovery.services import Services
from ..network.base import Payload
from ..network.cancelling import cancelled
from ..runtime.calls import JobCalls
from ..wire.errors import LocalProblem
from ..wire.ids import PeerId
from ..wire.status import ShardRow
from ..wire.types import Seconds
from .files import ShardFiles
from .handoff.state import Drop, Give, HandoffEvent, Renew, holder, is_mine, is_sole_keeper, unconfirmed
from .maintenance import CareRules, ShardMaintenance
from .messages import GetShard, ShardsSynced, SyncShards
from .protocol import ShardProtocol
from .route import Shipment
from .samples import SampleLayout
from .store import Make, ShardStore
from .transfer import NO_ROOM, ShardTransfer
from .visits import VisitHistory, length

ROOM_BYTES = 2 << 30  # for samples of others, unless the user says
USUAL = CareRules()
MEET_AT_ONCE = 16
SHARE_OF_ROOM = 0.5  # that what one peer offered may take
LOTS = 2  # peers met without a reason, now and then


class ShardDriver:
    """Contract: `add_own` for all the node brings, then `start`, then `keep` for as long as the node lives."""

    def __init__(
        self,
        services: Services,
        calls: JobCalls,
        layout: SampleLayout,
        members: Callable[[], list[PeerId]],
        room_bytes: int | None = None,
        rules: CareRules = USUAL,
    ) -> None:
        self.room_bytes = ROOM_BYTES if room_bytes is None else room_bytes
        self._services = services
        self._calls = calls
        self.members = members
        self._rules = rules
        files = ShardFiles(services.seams.storage, f"runs/{calls.access.run}/shards")
        self._shard_store = ShardStore(services.identity, services.seams, files, layout)
        self._protocol = ShardProtocol(services, calls, self._shard_store, lambda shard: self._fetching.want(shard))
        self._fetching = ShardTransfer(services, calls, self._shard_store, self._protocol.post)
        self._fetching.others, self._fetching.room_bytes = members, lambda: self.room_bytes
        self._care = ShardMaintenance(calls.run, self._shard_store, members, rules)
        self._protocol.refuses = self._why_not
        self._shard_store.is_elsewhere = self._is_elsewhere
        self._met: set[PeerId] = set()
        self._giving: set[str] = set()
        self._leaving = False

    # ---- for learning ----

    def add_own(self, shard: str, make: Make) -> None:
        """Samples this node brings, by a function that makes them; claimed unless somebody holds them."""
        self._shard_store.add_own(shard, make)

    async def start(self) -> None:
        """Take in what is on disk, and claim what nobody is known to hold."""
        self._tell_lost(len(await self._shard_store.load()))
        now = self._services.seams.clock.monotonic()
        self._care.look(now)
        for shard, event in self._care.decide(now):
            await self._do(shard, event)

    def ids(self) -> list[str]:
        """Shards whose samples are here."""
        return self._shard_store.here()

    def held(self) -> list[str]:
        """Those of them that this node is responsible for, and may give."""
        return [
            shard for shard in self._shard_store.here() if is_mine(self._shard_store.state(shard), self._shard_store.me)
        ]

    def read(self, shard: str) -> dict[str, NDArray[Any]]:
        """The samples, checked; KeyError when they are not here. Reads the disk."""
        return self._shard_store.read(shard)

    def history(self, shard: str) -> VisitHistory:
        """A shard's visits; travels with it."""
        return self._shard_store.history(shard)

    def set_history(self, history: VisitHistory) -> None:
        self._shard_store.put_history(history)

    def on_arrival(self, listener: Callable[[str], None]) -> None:
        """Be told when a shard's samples have come."""
        self._shard_store.on_arrival.append(listener)

    def on_gone(self, listener: Callable[[str], None]) -> None:
        """Be told when a shard's samples are no longer here."""
        self._shard_store.on_gone.append(listener)

    def row(self, shard: str) -> ShardRow:
        """What views show of a shard."""
        entry = self._shard_store.entries[shard]
        highest = entry.state.record.highest
        return ShardRow(
            id=shard,
            samples=entry.samples,
            size_bytes=entry.size_bytes,
            holder=holder(entry.state),
            keepers=() if highest is None else highest.keepers,
            here=entry.state.have,
            received=entry.received,
            visits=length(self._shard_store.history(shard)),
        )

    @property
    def free_bytes(self) -> int:
        """Room for more, what is only cache counted as free."""
        return max(0, self.room_bytes - self._shard_store.kept_bytes)

    # ---- giving ----

    async def give(self, shipment: Shipment) -> bool:
        """Hand a shard over; True once the receiver is its holder. A move also drops it here, once that is safe."""
        state, me, shard = self._shard_store.state(shipment.shard), self._shard_store.me, shipment.shard
        highest = state.record.highest
        if highest is None or highest.to != me or not state.have or state.offer is not None or shard in self._giving:
            return False
        keepers = self._care.keepers(shard, shipment.peer, (me, *highest.keepers), (me,) if shipment.move else ())
        self._giving.add(shard)
        try:
            given = await self._offer(shard, shipment.peer, keepers, self._rules.offer_open)
        finally:
            self._giving.discard(shard)
        if given and shipment.move:
            self._care.moving.add(shard)
        return given

    async def _offer(self, shard: str, to: str, keepers: tuple[str, ...], limit: Seconds) -> bool:
        await self._do(shard, Give(to, keepers))
        try:
            async with asyncio.timeout(limit):
                while self._shard_store.state(shard).offer is not None:
                    await self._shard_store.wait_for_change(shard)
        except TimeoutError:
            own = self._care.keepers(shard, self._shard_store.me, keepers)
            await self._do(shard, Renew(own))
        return holder(self._shard_store.state(shard)) == to

    @property
    def only_here(self) -> list[str]:
        """Shards that may be nowhere else: to be handed over before this node leaves."""
        entries = self._shard_store.entries.items()
        return [shard for shard, entry in entries if is_sole_keeper(entry.state, self._shard_store.me)]

    async def hand_over_all(self, limit: Seconds) -> None:
        """Before leaving: hand over what is nowhere else, as far as that goes within the limit, and say so."""
        self._leaving = True
        shards, events = self.only_here, self._services.events
        if not shards or not self.members():
            return
        events.say("handing over", f"{_are(shards)} only here; handing over before leaving")
        keeping = asyncio.create_task(self.keep())
        try:
            async with asyncio.timeout(limit):
                while any(await asyncio.gather(*(self._hand_over(shard, limit) for shard in self.only_here))):
                    pass  # one that was on its way here may have come meanwhile
        except TimeoutError:
            pass
        finally:
            await cancelled(keeping)
        left = self.only_here
        text = f"{_are(left)} still only here: nobody else took over in time" if left else f"{_are(shards)} handed over"
        events.say("handing over", text, warning=bool(left))

    async def _hand_over(self, shard: str, limit: Seconds) -> bool:
        me = self._shard_store.me
        for peer in [peer for peer in self._care.order(shard) if peer != me]:
            if await self._offer(shard, peer, self._care.keepers(shard, peer, (), (me,)), limit / 3):
                return True
        return False

    # ---- life ----

    async def keep(self) -> None:
        """Talk, fetch and look after shards until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._protocol.keep())
            group.create_task(self._fetching.keep())
            group.create_task(self._keep_caring())

    async def _keep_caring(self) -> None:
        rounds, clock = 0, self._services.seams.clock
        while True:
            self._care.look(clock.monotonic())
            if not self._leaving and not self._services.limiter.resting:
                for shard, event in self._care.decide(clock.monotonic()):
                    await self._do(shard, event)
                await self._look_after_files()
            self._fetch_again()
            rounds += 1
            await self._meet(anyone=rounds % self._rules.meet_anyone_every == 0)
            await asyncio.sleep(self._rules.period * self._services.seams.rng.uniform(0.8, 1.2))

    async def _meet(self, anyone: bool) -> None:
        """Newcomers, those we await something from, and now and then anyone."""
        members = self.members()
        newcomers = [peer for peer in members if peer not in self._met]
        self._met &= set(members)
        if not self._shard_store.entries:
            return
        awaited = [peer for peer in members if peer in self._awaited()]
        lots = self._services.seams.rng.sample(members, min(LOTS, len(members))) if anyone else []
        chosen = list(dict.fromkeys((*awaited, *newcomers, *lots)))[:MEET_AT_ONCE]
        went_well = await asyncio.gather(*map(self._protocol.meet, chosen))
        self._met.update(peer for peer, well in zip(chosen, went_well, strict=True) if well)

    def _awaited(self) -> set[str]:
        """Peers whose word is missing: on an offer, on keeping a shard, on dropping one."""
        me, awaited = self._shard_store.me, set[str]()
        for entry in self._shard_store.entries.values():
            state, highest = entry.state, entry.state.record.highest
            if highest is None:
                continue
            if state.offer is not None:
                awaited.add(state.offer.to)
            if highest.to == me:
                awaited.update(unconfirmed(state, me))
            elif state.have and state.record.kept and me not in highest.keepers:
                awaited.add(highest.to)
        return awaited

    def _fetch_again(self) -> None:
        for shard, entry in self._shard_store.entries.items():
            if entry.state.wanted is not None and not entry.state.have:
                self._fetching.want_again(shard)

    async def _look_after_files(self) -> None:
        try:
            self._tell_lost(len(await self._shard_store.look_after(self._rules.look_at_once)))
        except LocalProblem as problem:
            self._services.events.say("disk", f"the shards' files could not be looked at: {problem}", warning=True)

    def _tell_lost(self, count: int) -> None:
        if count == 0:
            return
        what = "the samples of a shard were" if count == 1 else f"the samples of {count} shards were"
        self._services.events.say(
            "shards", f"{what} deleted or damaged on disk; fetching them from keepers", warning=True
        )

    async def _do(self, shard: str, event: HandoffEvent) -> None:
        try:
            if isinstance(event, Drop):
                await self._shard_store.drop(shard)
            else:
                self._protocol.post(await self._shard_store.do(shard, event))
        except LocalProblem as problem:
            self._services.events.say("disk", f"a shard's files could not be changed: {problem}", warning=True)

    # ---- room and offers ----

    async def _is_elsewhere(self, shard: str) -> bool:
        """Whether a holder or keeper shows that it has the samples: a release alone may be a liar's."""
        highest, here = self._shard_store.state(shard).record.highest, self.members()
        content = await self._services.seams.background(lambda: self._shard_store.content(shard))
        if highest is None or content is None:
            return highest is not None
        named = [PeerId(peer) for peer in dict.fromkeys((highest.to, *highest.keepers)) if peer in here]
        for peer in named:
            if await self._protocol.has(peer, shard, content):
                return True
        return False

    def _why_not(self, peer: PeerId, shard: str) -> str:
        """Why an offer is declined at once, if it is."""
        if self._leaving or self._shard_store.state(shard).have:
            return "leaving" if self._leaving else ""
        if self._shard_store.bytes_from(peer) > self.room_bytes * SHARE_OF_ROOM:
            return "enough of yours"
        return "" if self.free_bytes > 0 else NO_ROOM

    # ---- for peers ----

    async def answer(self, peer: PeerId, request: SyncShards) -> ShardsSynced:
        return await self._protocol.answer(peer, request)

    async def payload(self, peer: PeerId, request: GetShard) -> Payload:
        return await self._fetching.payload(peer, request)


def _are(shards: list[str]) -> str:
    return "1 shard is" if len(shards) == 1 else f"{len(shards)} shards are"
