"""The shards that a node holds and keeps. The driver alone carries out what the state machine of `handoff` decides.

Every event goes through `_apply`: the store writes and adopts the new state, then messages leave and fetches begin.
Training adds the node's own data, reads what is here and asks for a shard to be given away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from ..discovery.services import Services
from ..network.base import Payload, cancel_and_wait
from ..runtime.calls import JobCalls
from ..runtime.events import Kind
from ..wire.errors import LocalProblem, NetworkDown, PeerError, PeerMisbehaved, PeerRefused
from ..wire.ids import PeerId
from ..wire.status import ShardRow
from ..wire.types import Seconds
from .handoff.certificate import is_offer
from .handoff.messages import Certified, Offer, Refusal, encode_handoff
from .handoff.state import (
    BytesArrived,
    Drop,
    Give,
    HandoffEvent,
    Lost,
    NotFetched,
    Received,
    Renew,
    ShardState,
    holder,
    is_mine,
    is_sole_keeper,
    may_have,
    sources,
    unconfirmed,
)
from .maintenance import NO_ROOM, MaintenanceRules, Room, ShardMaintenance, refusal
from .messages import MAX_MESSAGES, GetShard, ShardsSynced, SyncShards
from .protocol import PeerOutbox, ShardProtocol, possession, read_marks
from .route import Shipment
from .samples import SampleLayout
from .store import Effects, MakeSamples, Messages, ShardFiles, ShardStore
from .transfer import ShardTransfer, pack, shown_certificate
from .visits import VisitHistory, length

ROOM_BYTES = 2 << 30  # for samples of others, by default
USUAL = MaintenanceRules()
SYNC_TIMEOUT: Seconds = 10.0  # the other side writes to its disk before it answers
SYNCED_AT_ONCE = 16  # peers
RANDOM_PEERS = 2  # synchronised with now and then without a reason
MESSAGES_A_CALL = 10  # messages about shards that cost a peer as much of its limit as one call
MAX_MISSING = 1000  # shards without samples here that one peer may name; each costs a record on disk
FETCHES_AT_ONCE = 16  # shards being fetched, checked or written
FIRST_PAUSE: Seconds = 2.0  # before a keeper asks again for samples that nobody sent
LONGEST_PAUSE: Seconds = 120.0
NONCE_BYTES = 16

K = TypeVar("K")


class KeyedTasks(Generic[K]):
    """Runs `work(key)` for every key added: one task for a key at a time, and at most `limit` in all."""

    def __init__(self, work: Callable[[K], Awaitable[None]], limit: int = 1 << 30) -> None:
        self._work = work
        self._limit = limit
        self._waiting: dict[K, None] = {}
        self._wake = asyncio.Event()

    def add(self, key: K) -> None:
        self._waiting[key] = None
        self._wake.set()

    async def run(self) -> None:
        """Work until cancelled."""
        busy: dict[K, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wake.wait()
                self._wake.clear()
                busy = {key: task for key, task in busy.items() if not task.done()}
                for key in [key for key in self._waiting if key not in busy][: self._limit - len(busy)]:
                    busy[key] = group.create_task(self._run(key))

    async def _run(self, key: K) -> None:
        try:
            await self._work(key)
        finally:
            self._waiting.pop(key, None)
            self._wake.set()


class ShardDriver:
    """Call `add_own` for all the node's own data, then `start`; `run` lasts as long as the node."""

    def __init__(
        self,
        services: Services,
        calls: JobCalls,
        layout: SampleLayout,
        members: Callable[[], list[PeerId]],
        room_bytes: int | None = None,
        rules: MaintenanceRules = USUAL,
    ) -> None:
        self.members = members
        self._me = services.identity.peer_id
        self._services = services
        self._calls = calls
        self._rules = rules
        self._room_bytes = ROOM_BYTES if room_bytes is None else room_bytes
        self._leaving = False
        files = ShardFiles(services.seams.storage, f"runs/{calls.access.run}/{calls.job}/shards")
        self._store = ShardStore(services.identity, services.seams, files, layout)
        self._protocol = ShardProtocol(services.identity, calls.scope)
        self._transfer = ShardTransfer(services, calls, layout)
        self._maintenance = ShardMaintenance(calls.scope, self._me, self._store.entries, members, rules)
        self._outbox = PeerOutbox()
        self._sending = KeyedTasks(self._send_all)
        self._fetching = KeyedTasks(self._fetch, FETCHES_AT_ONCE)
        self._retries: dict[str, tuple[Seconds, Seconds]] = {}  # failed fetches: not again before, and the last pause
        self._synced: set[PeerId] = set()
        self._giving: set[str] = set()

    # ---- for training ----

    def add_own(self, shard: str, make: MakeSamples) -> None:
        """A shard of this node's own data, claimed unless somebody else holds it; `make` gives its samples."""
        self._store.add_own(shard, make)

    async def start(self) -> None:
        """Read what is on disk, and claim shards without a holder."""
        self._report_damaged(len(await self._store.load()))
        await self._maintain()

    def ids(self) -> list[str]:
        """Shards whose samples are here."""
        return self._store.here()

    def held(self) -> list[str]:
        """Shards here of which this node is the holder, so that it may give them away."""
        return [shard for shard in self._store.here() if is_mine(self._store.state(shard), self._me)]

    def read(self, shard: str) -> dict[str, NDArray[Any]]:
        """The samples, checked; KeyError when they are not here. Reads the disk."""
        return self._store.read(shard)

    def history(self, shard: str) -> VisitHistory:
        """The visits of a shard, which travel with it."""
        return self._store.history(shard)

    def set_history(self, history: VisitHistory) -> None:
        self._store.put_history(history)

    def row(self, shard: str) -> ShardRow:
        """What status and views show of a shard."""
        entry = self._store.entries[shard]
        highest = entry.state.record.highest
        return ShardRow(
            id=shard,
            samples=entry.samples,
            size_bytes=entry.size_bytes,
            holder=holder(entry.state),
            keepers=() if highest is None else highest.keepers,
            here=entry.state.have,
            received=entry.received,
            visits=length(self._store.history(shard)),
        )

    @property
    def room(self) -> Room:
        """The space for samples as it is now."""
        return Room(self._room_bytes, self._store.kept_bytes, self._leaving)

    # ---- carrying out events ----

    async def _apply(self, shard: str, event: HandoffEvent, content: bytes = b"") -> bool:
        """Let an event happen and carry out its effects; False when the disk fails, which is reported."""
        effects = await self._store_event(shard, event, content)
        if effects is None:
            return False
        self._post(effects.messages)
        return True

    async def _store_event(self, shard: str, event: HandoffEvent, content: bytes = b"") -> Effects | None:
        """Let an event happen and begin the fetch it asks for, but leave its messages to the caller."""
        try:
            effects = await self._store.apply(shard, event, content)
        except LocalProblem as problem:
            self._warn("disk", f"the files of shard {shard[:8]} could not be changed: {problem}")
            return None
        if effects.fetch:
            self._retries.pop(shard, None)
            self._fetching.add(shard)
        return effects

    async def _drop(self, shard: str) -> None:
        """Delete samples. The one place that does: nothing that this node keeps, nor what nobody else proves to have.

        That others have the samples is confirmed here, because the release that ended the keeping may be a lie.
        """
        if not self._store.state(shard).record.kept and await self._is_elsewhere(shard):
            await self._apply(shard, Drop())

    async def _is_elsewhere(self, shard: str) -> bool:
        """Whether the holder or a keeper proves that it has the samples."""
        highest, members = self._store.state(shard).record.highest, self.members()
        content = await self._services.seams.background(lambda: self._store.content(shard))
        if highest is None or content is None:
            return highest is not None
        for peer in dict.fromkeys((highest.to, *highest.keepers)):
            if peer in members and await self._proves_possession(PeerId(peer), shard, content):
                return True
        return False

    async def _make_room(self, size_bytes: int) -> bool:
        """Drop what need not be kept, oldest first, until `size_bytes` more fit; False when they do not."""
        for shard in self._store.cached():
            if self._store.used_bytes + size_bytes <= self._room_bytes:
                break
            await self._drop(shard)
        return self._store.used_bytes + size_bytes <= self._room_bytes

    # ---- giving away ----

    async def give(self, shipment: Shipment) -> bool:
        """Hand a shard over; True once the receiver is its holder. A move also drops it here, once that is safe."""
        state, me, shard = self._store.state(shipment.shard), self._me, shipment.shard
        highest = state.record.highest
        if highest is None or highest.to != me or not state.have or state.offer is not None or shard in self._giving:
            return False
        keepers = self._maintenance.keepers(
            shard, shipment.peer, (me, *highest.keepers), (me,) if shipment.move else ()
        )
        self._giving.add(shard)
        try:
            given = await self._offer(shard, shipment.peer, keepers, self._rules.offer_open)
        finally:
            self._giving.discard(shard)
        if given and shipment.move:
            self._maintenance.moving.add(shard)
        return given

    async def _offer(self, shard: str, to: str, keepers: tuple[str, ...], limit: Seconds) -> bool:
        await self._apply(shard, Give(to, keepers))
        try:
            async with asyncio.timeout(limit):
                while self._store.state(shard).offer is not None:
                    await self._store.wait_for_change(shard)
        except TimeoutError:
            await self._apply(shard, Renew(self._maintenance.keepers(shard, self._me, keepers)))
        return holder(self._store.state(shard)) == to

    @property
    def unreplicated(self) -> list[str]:
        """Shards that may exist only here: to be handed over before this node leaves."""
        return [shard for shard, entry in self._store.entries.items() if is_sole_keeper(entry.state, self._me)]

    async def hand_over_all(self, limit: Seconds) -> None:
        """Hands over shards that exist only here, as many as the limit allows, before leaving, and reports it."""
        self._leaving = True
        shards, events = self.unreplicated, self._services.events
        if not shards or not self.members():
            return
        events.say("handing over", f"{_are(shards)} only here; handing over before leaving")
        running = asyncio.create_task(self.run())
        try:
            async with asyncio.timeout(limit):
                while any(await asyncio.gather(*(self._hand_over(shard, limit) for shard in self.unreplicated))):
                    pass  # a shard that was on its way here may have arrived meanwhile
        except TimeoutError:
            pass
        finally:
            await cancel_and_wait(running)
        left = self.unreplicated
        text = f"{_are(left)} still only here: nobody else took over in time" if left else f"{_are(shards)} handed over"
        events.say("handing over", text, warning=bool(left))

    async def _hand_over(self, shard: str, limit: Seconds) -> bool:
        for peer in [peer for peer in self._maintenance.order(shard) if peer != self._me]:
            keepers = self._maintenance.keepers(shard, peer, excluded=(self._me,))
            if await self._offer(shard, peer, keepers, limit / 3):
                return True
        return False

    # ---- lasting work ----

    async def run(self) -> None:
        """Send, fetch and maintain until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sending.run())
            group.create_task(self._fetching.run())
            group.create_task(self._maintain_periodically())

    async def _maintain_periodically(self) -> None:
        rounds, seams = 0, self._services.seams
        while True:
            if self._leaving or self._services.limiter.resting:
                self._maintenance.note_members(seams.clock.monotonic())
            else:
                await self._maintain()
                await self._check_files()
            self._fetch_again()
            rounds += 1
            await self._synchronise(anyone=rounds % self._rules.sync_anyone_every == 0)
            await asyncio.sleep(self._rules.period * seams.rng.uniform(0.8, 1.2))

    async def _maintain(self) -> None:
        now = self._services.seams.clock.monotonic()
        self._maintenance.note_members(now)
        for shard, event in self._maintenance.decide(now):
            await (self._drop(shard) if isinstance(event, Drop) else self._apply(shard, event))

    async def _check_files(self) -> None:
        """Samples whose file is missing or damaged count as lost here, and are fetched again where they are owed."""
        try:
            damaged = await self._store.find_damaged(self._rules.files_checked)
        except LocalProblem as problem:
            self._warn("disk", f"the files of shards could not be checked: {problem}")
            return
        for shard in damaged:
            await self._apply(shard, Lost())
        self._report_damaged(len(damaged))

    def _report_damaged(self, count: int) -> None:
        if count:
            samples = "the samples of a shard were" if count == 1 else f"the samples of {count} shards were"
            self._warn("shards", f"{samples} deleted or damaged on disk; fetching them from keepers")

    # ---- fetching ----

    async def _fetch(self, shard: str) -> None:
        """Fetch wanted samples from whoever has them; a failure declines an offer, and a keeper tries again later."""
        state, room, members = self._store.state(shard), self.room, tuple(self.members())
        fetched, reason = None, NO_ROOM
        if room.free_bytes > 0:
            reason = "nobody gave it"
            peers = sorted(sources(state, self._me, members), key=lambda peer: peer not in members)
            known = await self._services.seams.background(lambda: self._store.history(shard))
            fetched = await self._transfer.fetch(shard, peers, state.wanted, known, room.free_bytes)
        if fetched is not None:
            reason = NO_ROOM
            await self._take_history(fetched.history)
            content = fetched.content
            if await self._make_room(len(content)) and await self._apply(shard, BytesArrived(), content):
                return
        _, pause = self._retries.get(shard, (0.0, FIRST_PAUSE / 2))
        pause = min(2 * pause, LONGEST_PAUSE)
        self._retries[shard] = (self._services.seams.clock.monotonic() + pause, pause)
        await self._apply(shard, NotFetched(reason))

    async def _take_history(self, history: VisitHistory) -> None:
        """Keep a history that came with a shard if it has more visits than the one here."""
        if length(history) > length(self._store.history(history.shard)):
            try:
                await self._services.seams.background(lambda: self._store.put_history(history))
            except LocalProblem as problem:
                self._warn("disk", f"the visits of shard {history.shard[:8]} could not be written: {problem}")

    def _fetch_again(self) -> None:
        """Try again what could not be fetched, the more seldom the longer nobody sends it."""
        now = self._services.seams.clock.monotonic()
        for shard, entry in self._store.entries.items():
            wanted = entry.state.wanted is not None and not entry.state.have
            if wanted and self._retries.get(shard, (0.0, 0.0))[0] <= now:
                self._fetching.add(shard)

    # ---- messages to peers ----

    def _post(self, messages: Messages) -> None:
        """Send messages soon, once."""
        for peer in self._outbox.add(messages):
            self._sending.add(peer)

    async def _send_all(self, peer: PeerId) -> None:
        while messages := self._outbox.take(peer):
            answer = await self._sync(peer, SyncShards(tuple(map(encode_handoff, messages))))
            if answer is None:
                self._outbox.discard(peer)
            else:
                await self._hear_answer(peer, answer)

    async def _synchronise(self, anyone: bool) -> None:
        """Compare what is known with new members, with those that owe an answer, and now and then with anyone."""
        members, rng = self.members(), self._services.seams.rng
        newcomers = [peer for peer in members if peer not in self._synced]
        self._synced &= set(members)
        if not self._store.entries:
            return
        awaited = self._awaited()
        some = rng.sample(members, min(RANDOM_PEERS, len(members))) if anyone else []
        chosen = dict.fromkeys((*(peer for peer in members if peer in awaited), *newcomers, *some))
        peers = list(chosen)[:SYNCED_AT_ONCE]
        answered = await asyncio.gather(*map(self._synchronise_with, peers))
        self._synced.update(peer for peer, well in zip(peers, answered, strict=True) if well)

    async def _synchronise_with(self, peer: PeerId) -> bool:
        answer = await self._sync(peer, SyncShards(compare=True, marks=self._marks()))
        if answer is None:
            return False
        await self._hear_answer(peer, answer, compare=True)
        return True

    def _awaited(self) -> set[str]:
        """Peers whose answer is missing: to an offer, about keeping a shard, about dropping one."""
        awaited = set[str]()
        for state in self._states().values():
            highest = state.record.highest
            if highest is None:
                continue
            if state.offer is not None:
                awaited.add(state.offer.to)
            if highest.to == self._me:
                awaited.update(unconfirmed(state, self._me))
            elif state.have and state.record.kept and self._me not in highest.keepers:
                awaited.add(highest.to)
        return awaited

    async def _proves_possession(self, peer: PeerId, shard: str, content: bytes) -> bool:
        """Whether a peer shows that it has the samples, which are here too."""
        nonce = self._services.seams.rng.randbytes(NONCE_BYTES)
        answer = await self._sync(peer, SyncShards(prove=shard, nonce=nonce))
        return answer is not None and answer.possession == possession(nonce, content)

    async def _sync(self, peer: PeerId, request: SyncShards) -> ShardsSynced | None:
        try:
            return await self._calls.ask(peer, request, ShardsSynced, SYNC_TIMEOUT)
        except (PeerError, NetworkDown):
            return None

    async def _hear_answer(self, peer: PeerId, answer: ShardsSynced, compare: bool = False) -> None:
        try:
            self._post(await self._hear_all(peer, answer.messages))
            if compare:
                news = self._protocol.news(peer, self._states(), read_marks(answer.marks))
                self._post(tuple((peer, message) for message in news))
        except ValueError as fault:
            self._services.fault(peer, f"shards: {fault}")

    def _states(self) -> dict[str, ShardState]:
        return {shard: entry.state for shard, entry in self._store.entries.items()}

    def _marks(self) -> bytes:
        return self._protocol.marks(self._states(), self._services.seams.rng)

    # ---- messages from peers ----

    async def _hear_all(self, peer: PeerId, messages: tuple[bytes, ...]) -> Messages:
        """What some messages lead to; those about different shards do not wait for each other's writes."""
        outcomes = await asyncio.gather(*(self._hear(peer, data) for data in messages), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return tuple(pair for sent in outcomes if not isinstance(sent, BaseException) for pair in sent)

    async def _hear(self, peer: PeerId, data: bytes) -> Messages:
        """The messages that one message leads to; ValueError when the peer may not send it."""
        shard, message = self._protocol.read(peer, data, self._store.state)
        concerns_me = self._protocol.names_me(message) and self._store.missing_from(peer) < MAX_MISSING
        if shard not in self._store.entries and not concerns_me:
            return ()
        if isinstance(message, Offer):
            reason = refusal(self.room, self._store.state(shard), self._store.kept_bytes_from(peer))
            if reason:
                offered = message.certificate
                return ((peer, Refusal(offered.run, shard, offered.term, reason)),)
        effects = await self._store_event(shard, Received(peer, message))
        return () if effects is None else effects.messages

    # ---- requests of peers ----

    async def answer(self, peer: PeerId, request: SyncShards) -> ShardsSynced:
        """Take in a peer's messages and answer them, with news if the peer compares what both know."""
        self._charge(peer, len(request.messages))
        try:
            sent = await self._hear_all(peer, request.messages)
            replies = [message for to, message in sent if to == peer]
            self._post(tuple((to, message) for to, message in sent if to != peer))
            if request.compare:
                replies += self._protocol.news(peer, self._states(), read_marks(request.marks))
        except ValueError as fault:
            raise PeerMisbehaved(f"shards: {fault}") from None
        self._post(tuple((peer, message) for message in replies[MAX_MESSAGES:]))
        messages = tuple(map(encode_handoff, replies[:MAX_MESSAGES]))
        proof = b"" if request.prove is None else await self._prove_possession(request.prove, request.nonce)
        return ShardsSynced(messages, self._marks() if request.compare else b"", proof)

    async def _prove_possession(self, shard: str, nonce: bytes) -> bytes:
        """The proof that the samples are here; empty when they are not."""
        if not self._store.state(shard).have:
            return b""
        content = await self._services.seams.background(lambda: self._store.content(shard))
        return b"" if content is None else possession(nonce, content)

    def _charge(self, peer: PeerId, messages: int) -> None:
        """Many messages cost a peer as much of its limit as some calls, because each may be a write to our disk."""
        now, reputation = self._services.seams.clock.monotonic(), self._services.reputation
        if not all(reputation.admit_call(peer, now) for _ in range(messages // MESSAGES_A_CALL)):
            raise PeerRefused("busy", "too many messages about shards; slow down")

    async def payload(self, peer: PeerId, request: GetShard) -> Payload:
        """A shard's history and samples; PeerRefused when they are not here or the peer may not have them."""
        shard = request.shard
        if not self._store.state(shard).have:
            raise PeerRefused("unknown shard", "its samples are not here")
        shown = shown_certificate(request, self._calls.scope, peer, self._me, self._store.state(shard).record.highest)
        if not is_offer(shown):
            await self._apply(shard, Received(peer, Certified(shown)))
        if not may_have(self._store.state(shard), peer, shown):
            raise PeerRefused("not yours", "neither holder nor keeper of that shard, as far as is known here")
        content = await self._services.seams.background(lambda: self._store.content(shard))
        if content is None:
            raise PeerRefused("unknown shard", "its samples are damaged here")
        history = await self._services.seams.background(lambda: self._store.history(shard))
        return pack(history, content)

    def _warn(self, kind: Kind, text: str) -> None:
        self._services.events.say(kind, text, warning=True)


def _are(shards: list[str]) -> str:
    return "1 shard is" if len(shards) == 1 else f"{len(shards)} shards are"
