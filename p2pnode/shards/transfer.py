"""The bytes of shards: given to who may have them, fetched where they are wanted, and checked."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import msgspec

from ..discovery.services import Services
from ..network.base import MemorySink, Payload, StreamLimits
from ..runtime.calls import JobCalls
from ..wire.errors import LocalProblem, NetworkDown, PeerError, PeerMisbehaved, PeerRefused
from ..wire.ids import PeerId
from ..wire.types import Seconds, decoded
from .handoff.certificate import Certificate, check_offer, is_offer
from .handoff.messages import Certified, check_handoff
from .handoff.state import BytesArrived, NotFetched, Received, may_have, sources
from .messages import GetShard
from .samples import MAX_SHARD_BYTES, decode_samples
from .store import Sent, ShardStore
from .visits import MAX_BYTES as MAX_HISTORY_BYTES
from .visits import check_history, check_nothing_left_out, decode_history, encode_history, length

AT_ONCE = 16  # shards on their way to the disk
STREAMS = 8  # of them, those that are being fetched
MOST_ASKED = 8  # for one shard at a time
FIRST_PAUSE: Seconds = 2.0  # before a keeper asks again for what nobody gave
LONGEST_PAUSE: Seconds = 120.0
ASK_PAUSES: tuple[Seconds, ...] = (0.3, 1.0, 0.0)
NO_ROOM = "no room"
_LENGTH = struct.Struct(">I")
_decoder = msgspec.msgpack.Decoder(Certificate)
_encoder = msgspec.msgpack.Encoder()


class ShardTransfer:
    """`post` takes the messages that what is fetched leads to."""

    def __init__(
        self, services: Services, calls: JobCalls, shard_store: ShardStore, post: Callable[[Sent], None]
    ) -> None:
        self._services = services
        self._calls = calls
        self._shard_store = shard_store
        self._post = post
        self._wanted: dict[str, None] = {}
        self._soon = asyncio.Event()
        self._streams = asyncio.Semaphore(STREAMS)
        self.others: Callable[[], list[PeerId]] = list  # members who may have what the named ones have not
        self.room_bytes: Callable[[], int] = lambda: MAX_SHARD_BYTES  # for all samples together
        self._tried: dict[str, tuple[Seconds, Seconds]] = {}  # what failed: not again before, and the pause until then

    # ---- giving ----

    async def payload(self, peer: PeerId, request: GetShard) -> Payload:
        """A shard's history and samples; PeerRefused when they are not here or not for this peer."""
        if not self._shard_store.state(request.shard).have:
            raise PeerRefused("unknown shard", "its samples are not here")
        shown = self._checked(peer, request)
        if not is_offer(shown):
            self._post(await self._shard_store.do(request.shard, Received(peer, Certified(shown))))
        if not may_have(self._shard_store.state(request.shard), peer, shown):
            raise PeerRefused("not yours", "neither holder nor keeper of that shard, as far as is known here")
        payload = await self._services.seams.background(lambda: self._packed(request.shard))
        if payload is None:
            raise PeerRefused("unknown shard", "its samples are damaged here")
        return payload

    def _packed(self, shard: str) -> Payload | None:
        content = self._shard_store.content(shard)
        history = encode_history(self._shard_store.history(shard))
        return None if content is None else Payload.of(b"".join([_LENGTH.pack(len(history)), history, content]))

    def _checked(self, peer: PeerId, request: GetShard) -> Certificate:
        """What a peer shows when it asks for a shard; PeerMisbehaved when it is nothing proper."""
        try:
            shown = decoded(_decoder, request.certificate, "certificate")
            if (shown.run, shown.shard) != (self._calls.run, request.shard):
                raise ValueError("the certificate is another's")
            if is_offer(shown):
                check_offer(shown, shown.giver, peer)
            else:
                check_handoff(
                    Certified(shown), peer, self._calls.me, self._shard_store.state(shown.shard).record.highest
                )
        except ValueError as error:
            raise PeerMisbehaved(f"shard: {str(error)[:120]}") from None
        return shown

    # ---- fetching ----

    def want(self, shard: str) -> None:
        """Fetch the bytes of a shard as soon as may be."""
        self._tried.pop(shard, None)
        self._wanted[shard] = None
        self._soon.set()

    def want_again(self, shard: str) -> None:
        """The same, but the more seldom the longer nobody has them."""
        if self._tried.get(shard, (0.0, 0.0))[0] <= self._services.seams.clock.monotonic():
            self._wanted[shard] = None
            self._soon.set()

    async def keep(self) -> None:
        """Fetch what is wanted until cancelled."""
        busy: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                await self._soon.wait()
                self._soon.clear()
                busy = {shard: task for shard, task in busy.items() if not task.done()}
                waiting = [shard for shard in self._wanted if shard not in busy]
                for shard in waiting[: max(0, AT_ONCE - len(busy))]:
                    busy[shard] = group.create_task(self._fetch_one(shard))

    async def _fetch_one(self, shard: str) -> None:
        try:
            self._post(await self._fetch(shard))
        except LocalProblem as problem:
            self._services.events.say("disk", f"a shard could not be noted: {problem}", warning=True)
        finally:
            self._wanted.pop(shard, None)
            self._soon.set()

    async def _fetch(self, shard: str) -> Sent:
        """From whoever has it; what that leads to. A full disk declines what is offered."""
        state, room = self._shard_store.state(shard), self.room_bytes() - self._shard_store.kept_bytes
        others = tuple(self.others())
        named = sources(state, self._calls.me, others) if room > 0 else ()
        asked = sorted(named, key=lambda peer: peer not in others)[:MOST_ASKED]
        for pause in ASK_PAUSES:  # a peer may be busy, or just restarting
            async with self._streams:
                content = await self._from_any(asked, shard, state.wanted, room)
            if content is not None:
                return await self._store(shard, content)
            await asyncio.sleep(pause if asked else 0.0)
        return await self._failed(shard, "nobody gave it" if room > 0 else NO_ROOM)

    async def _from_any(self, peers: list[str], shard: str, wanted: Certificate | None, room: int) -> bytes | None:
        for peer in peers:
            content = await self._content(PeerId(peer), shard, wanted, room)
            if content is not None:
                return content
        return None

    async def _store(self, shard: str, content: bytes) -> Sent:
        try:
            if await self._shard_store.make_room(len(content), self.room_bytes()):
                return await self._shard_store.do(shard, BytesArrived(), content)
        except LocalProblem as problem:
            self._services.events.say("disk", f"a shard could not be stored: {problem}", warning=True)
        return await self._failed(shard, NO_ROOM)

    async def _failed(self, shard: str, why: str) -> Sent:
        now, (_, pause) = self._services.seams.clock.monotonic(), self._tried.get(shard, (0.0, FIRST_PAUSE / 2))
        pause = min(2 * pause, LONGEST_PAUSE)
        self._tried[shard] = (now + pause, pause)
        return await self._shard_store.do(shard, NotFetched(why))

    async def _content(self, peer: PeerId, shard: str, wanted: Certificate | None, room: int) -> bytes | None:
        """The samples as one peer gives them, checked; None when it does not. What is wrong costs it standing."""
        request = GetShard(shard, _encoder.encode(wanted))
        most = min(room, MAX_SHARD_BYTES) + MAX_HISTORY_BYTES + _LENGTH.size
        sink = MemorySink()
        try:
            await self._calls.fetch(peer, request, sink, StreamLimits(most))
            return await self._services.seams.background(lambda: self._unpacked(peer, shard, sink.content()))
        except ValueError as fault:
            self._services.fault(peer, f"shard: {fault}")
        except PeerMisbehaved as fault:
            if room >= MAX_SHARD_BYTES:  # else it may only be too large for us
                self._services.fault(peer, f"shard: {fault}")
        except (PeerError, NetworkDown):
            pass
        return None

    def _unpacked(self, peer: PeerId, shard: str, data: bytes) -> bytes:
        """The samples in what a peer gave; its history is put on disk when it tells more than ours."""
        if len(data) < _LENGTH.size:
            raise ValueError("a shard without content")
        end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        content = data[end:]
        decode_samples(content, self._shard_store.layout, shard)
        theirs, ours = decode_history(data[_LENGTH.size : end]), self._shard_store.history(shard)
        check_history(theirs, shard, self._services.clock.now())
        for visit in [visit for visit in ours.visits if visit.peer == peer][-1:]:
            check_nothing_left_out(theirs, visit)
        if length(theirs) > length(ours):
            self._shard_store.put_history(theirs)
        return content
