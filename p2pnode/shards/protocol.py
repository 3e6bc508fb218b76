"""Words about shards between nodes: told in calls of many at a time, checked before they count, and said again at every
meeting, which is the only way anything is ever repeated.

When two nodes meet, each sends short marks of the certificates it knows (8 bytes a shard), and then says only what the
other does not know, or what it has a question about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from blake3 import blake3

from ..discovery.services import Services
from ..runtime.calls import JobCalls
from ..wire.errors import LocalProblem, NetworkDown, PeerError, PeerMisbehaved, PeerRefused
from ..wire.ids import PeerId
from ..wire.types import Seconds
from .handoff.certificate import certificate_id
from .handoff.messages import AnyMessage, Kept, Offer, Refusal, about, check_handoff, decode_handoff, encode_handoff
from .handoff.state import Meet, Received, ShardState, is_mine, unconfirmed
from .handoff.step import step
from .messages import MAX_SHARD_MARKS_BYTES, MAX_SHARD_WORDS, ShardsSynced, SyncShards
from .store import Sent, ShardStore

TALK_TIMEOUT: Seconds = 10.0  # the other side writes to its disk before it answers
WORDS_A_CALL = 10
MAX_WAITING = 4096  # words to one peer; the next meeting says the others
MAX_MISSING = 1000  # shards that one peer told of and whose samples are not here: more is more than we keep records of
MARK_BYTES = 4  # of a shard's id, and as many of its certificate's
NONCE_BYTES = 16
NO_CERTIFICATE = bytes(MARK_BYTES)

Marks = dict[bytes, bytes]


class ShardProtocol:
    """One node's words about shards, out and in. `wants` is told of shards whose bytes are to be fetched."""

    def __init__(
        self, services: Services, calls: JobCalls, shard_store: ShardStore, wants: Callable[[str], None]
    ) -> None:
        self._services = services
        self._calls = calls
        self._shard_store = shard_store
        self._wants = wants
        self._waiting: dict[PeerId, list[AnyMessage]] = {}
        self._soon = asyncio.Event()
        self.refuses: Callable[[PeerId, str], str] = lambda peer, shard: ""  # why an offer is declined at once

    # ---- out ----

    def post(self, messages: Sent) -> None:
        """Say these as soon as may be, once."""
        for peer, message in messages:
            waiting = self._waiting.setdefault(PeerId(peer), [])
            if len(waiting) < MAX_WAITING and message not in waiting[-MAX_SHARD_WORDS:]:
                waiting.append(message)
        if messages:
            self._soon.set()

    async def keep(self) -> None:
        """Say what is to be said until cancelled; whoever does not answer holds up nobody else."""
        busy: dict[PeerId, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                await self._soon.wait()
                self._soon.clear()
                busy = {peer: task for peer, task in busy.items() if not task.done()}
                for peer in [peer for peer in self._waiting if peer not in busy]:
                    busy[peer] = group.create_task(self._say_all(peer))

    async def _say_all(self, peer: PeerId) -> None:
        try:
            while self._waiting.get(peer):
                words = self._waiting[peer][:MAX_SHARD_WORDS]
                del self._waiting[peer][:MAX_SHARD_WORDS]
                await self._say(peer, words)
        finally:
            self._waiting.pop(peer, None)

    async def _say(self, peer: PeerId, words: list[AnyMessage]) -> None:
        told = await self._tell(peer, tuple(map(encode_handoff, words)))
        if told is None:
            self._waiting.pop(peer, None)  # the next meeting says it again
        else:
            await self._take_told(peer, told)

    async def meet(self, peer: PeerId) -> bool:
        """Find out what each of us does not know; False when the peer does not answer."""
        told = await self._tell(peer, (), meet=True)
        if told is None:
            return False
        await self._take_told(peer, told)
        self.post(tuple((peer, message) for message in self._news(peer, read_marks(told.marks))))
        return True

    async def has(self, peer: PeerId, shard: str, content: bytes) -> bool:
        """Whether a peer shows that it has the samples, which are here too."""
        nonce = self._services.seams.rng.randbytes(NONCE_BYTES)
        told = await self._send(peer, SyncShards(prove=shard, nonce=nonce))
        return told is not None and told.possession == possession(nonce, content)

    async def _tell(self, peer: PeerId, words: tuple[bytes, ...], meet: bool = False) -> ShardsSynced | None:
        return await self._send(peer, SyncShards(words, meet, self.marks() if meet else b""))

    async def _send(self, peer: PeerId, request: SyncShards) -> ShardsSynced | None:
        try:
            return await self._calls.ask(peer, request, ShardsSynced, TALK_TIMEOUT)
        except (PeerError, NetworkDown):
            return None

    async def _take_told(self, peer: PeerId, told: ShardsSynced) -> None:
        try:
            self.post(await self._hear_all(peer, told.words))
        except ValueError as fault:
            self._services.fault(peer, f"shards: {fault}")

    # ---- in ----

    async def answer(self, peer: PeerId, request: SyncShards) -> ShardsSynced:
        """What a peer gets for its words: those of ours that answer them, and news when it meets us."""
        self._charge(peer, len(request.words))
        replies: list[AnyMessage] = []
        try:
            said = await self._hear_all(peer, request.words)
            replies += [message for to, message in said if to == peer]
            self.post(tuple((to, message) for to, message in said if to != peer))
            if request.meet:
                replies += self._news(peer, read_marks(request.marks))
        except ValueError as fault:
            raise PeerMisbehaved(f"shards: {fault}") from None
        self.post(tuple((peer, message) for message in replies[MAX_SHARD_WORDS:]))
        words = tuple(map(encode_handoff, replies[:MAX_SHARD_WORDS]))
        proof = b"" if request.prove is None else await self._proof(request.prove, request.nonce)
        return ShardsSynced(words, self.marks() if request.meet else b"", proof)

    async def _proof(self, shard: str, nonce: bytes) -> bytes:
        """What shows that the samples are here; nothing when they are not."""
        if not self._shard_store.state(shard).have:
            return b""
        content = await self._services.seams.background(lambda: self._shard_store.content(shard))
        return b"" if content is None else possession(nonce, content)

    def _charge(self, peer: PeerId, words: int) -> None:
        """Many words cost as much of a peer's allowance as some calls: each may be a write to our disk."""
        now, reputation = self._services.seams.clock.monotonic(), self._services.reputation
        if not all(reputation.admit_call(peer, now) for _ in range(words // WORDS_A_CALL)):
            raise PeerRefused("busy", "too many words about shards; slow down")

    async def _hear_all(self, peer: PeerId, words: tuple[bytes, ...]) -> Sent:
        """What some words lead to; those about different shards need not wait for each other's writes."""
        outcomes = await asyncio.gather(*(self._hear(peer, word) for word in words), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return tuple(pair for said in outcomes if not isinstance(said, BaseException) for pair in said)

    async def _hear(self, peer: PeerId, word: bytes) -> Sent:
        """What a word leads to; ValueError when the peer may not say it. A full disk leaves it unheard."""
        message = decode_handoff(word)
        run, shard = about(message)
        if run != self._calls.run:
            raise ValueError("about a shard of another run")
        state = self._shard_store.state(shard)
        check_handoff(message, peer, self._calls.me, state.record.highest)
        if not self._concerns_us(peer, message, shard):
            return ()
        if isinstance(message, Offer):
            why = self.refuses(peer, shard)
            if why:
                return ((peer, Refusal(run, shard, message.certificate.term, why)),)
        try:
            said = await self._shard_store.do(shard, Received(peer, message))
        except LocalProblem as problem:
            self._services.events.say("disk", f"a word about a shard could not be noted: {problem}", warning=True)
            return ()
        if self._shard_store.state(shard).wanted is not None:
            self._wants(shard)
        return said

    def _concerns_us(self, peer: PeerId, message: AnyMessage, shard: str) -> bool:
        """Whether there is anything to do: of shards this node has nothing to do with it keeps no record."""
        if shard in self._shard_store.entries:
            return True
        named = not isinstance(message, Refusal | Kept) and self._calls.me in message.certificate.keepers
        return named and self._shard_store.missing_from(peer) < MAX_MISSING

    # ---- what is news ----

    def marks(self) -> bytes:
        """What this node knows, in short; some of it by lot when it is very much."""
        shards, most = list(self._shard_store.entries), MAX_SHARD_MARKS_BYTES // (2 * MARK_BYTES)
        if len(shards) > most:
            shards = self._services.seams.rng.sample(shards, most)
        return b"".join(_key(shard) + _mark(self._shard_store.state(shard)) for shard in shards)

    def _news(self, peer: PeerId, theirs: Marks) -> list[AnyMessage]:
        """What a peer should be told, given what it knows."""
        told: list[AnyMessage] = []
        for shard, entry in self._shard_store.entries.items():
            if _worth_telling(entry.state, self._calls.me, peer, theirs.get(_key(shard))):
                said = step(self._services.identity, entry.state, Meet(peer)).messages
                told += [message for _, message in said]
        return told


def _worth_telling(state: ShardState, me: str, peer: str, mark: bytes | None) -> bool:
    """Whether a peer that knows the certificate of this mark (None: does not know the shard) should hear of ours."""
    highest = state.record.highest
    if highest is None:
        return False
    asks = state.have and state.record.kept and me not in highest.keepers and peer == highest.to
    offers = state.offer is not None and state.offer.to == peer
    awaits = is_mine(state, me) and peer in unconfirmed(state, me)
    differs = mark is not None and mark != _mark(state)
    return asks or offers or awaits or differs or (mark is None and peer in highest.keepers)


def possession(nonce: bytes, content: bytes) -> bytes:
    """What only who has the content can answer to a nonce."""
    return blake3(nonce).update(content).digest()


def read_marks(data: bytes) -> Marks:
    """Marks by shard; ValueError when they are cut off."""
    if len(data) % (2 * MARK_BYTES):
        raise ValueError("marks of shards are cut off")
    places = range(0, len(data), 2 * MARK_BYTES)
    return {data[at : at + MARK_BYTES]: data[at + MARK_BYTES : at + 2 * MARK_BYTES] for at in places}


def _key(shard: str) -> bytes:
    return bytes.fromhex(shard[: 2 * MARK_BYTES])


def _mark(state: ShardState) -> bytes:
    highest = state.record.highest
    return NO_CERTIFICATE if highest is None else certificate_id(highest)[:MARK_BYTES]
