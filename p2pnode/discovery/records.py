"""Publishes and reads signed records. The network only finds the peers nearest to a key; our own calls do the rest.

The same code runs over libp2p and the simulator. hivemind's own store and find are disabled: they trust the local
clock, and drop a whole dictionary because of one bad entry. Only hivemind's routing is used.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..network.base import Network
from ..wire.envelope import seal
from ..wire.errors import PeerError, PeerMisbehaved
from ..wire.ids import Identity, PeerId
from ..wire.messages import Find, FoundRecords, Message, Store, Stored, decode_answer
from ..wire.records import (
    MAX_RECORDS_PER_KEY,
    WRONG_SIGNATURE,
    RecordStore,
    SignedRecord,
    VerifiedRecords,
    sign_record,
    why_refused,
)
from ..wire.types import Seconds

REPLICAS = 5
READERS = 3
CALL_TIMEOUT: Seconds = 5.0
PAGE_RECORDS = 250
MAX_PAGES = 4

A = TypeVar("A", bound=Message)
Pick = Callable[[list[PeerId]], list[PeerId]]


@dataclass(frozen=True)
class Published:
    """The result of publishing: the storers' verdicts, and how many other peers keep a copy."""

    record: SignedRecord
    verdicts: tuple[str, ...]
    copies: int


class Records:
    """One node's access to the swarm's signed, expiring records, and the records it stores for others (`kept`)."""

    def __init__(self, network: Network, identity: Identity, swarm_time: Callable[[], float]) -> None:
        self.kept = RecordStore()
        self._network = network
        self._identity = identity
        self._now = swarm_time
        self._verified = VerifiedRecords()

    async def publish(self, key: str, value: bytes, ttl: Seconds) -> Published:
        """Sign a value and store it at the peers nearest to its key. Raises NetworkDown when our network is down."""
        record = sign_record(self._identity, key, value, self._now() + ttl)
        storers = await self._network.nearest(key, REPLICAS)
        verdicts = await asyncio.gather(*(self._store_at(peer, record) for peer in storers))
        said = [(peer, verdict) for peer, verdict in zip(storers, verdicts, strict=True) if verdict is not None]
        copies = sum(verdict == "stored" and peer != self._network.peer for peer, verdict in said)
        return Published(record, tuple(verdict for _, verdict in said), copies)

    async def _store_at(self, peer: PeerId, record: SignedRecord) -> str | None:
        if peer == self._network.peer:
            return self.kept.put(record, peer, self._now())[0]
        try:
            answer = await self._ask(peer, Store((record,)), Stored)
        except PeerError:
            return None
        return answer.verdicts[0] if answer.verdicts else None

    async def read(self, key: str, only: Pick | None = None) -> dict[PeerId, SignedRecord]:
        """Return every peer's latest valid record under a key, from several storers or from those that `only` picks."""
        storers = await self._network.nearest(key, READERS)
        if only is not None:
            storers = only(storers)
        answers = await asyncio.gather(*(self._find_at(peer, key) for peer in storers))
        return self._verified.latest(key, (record for found in answers for record in found), self._now())

    async def sample(self, key: str, limit: int, rng: random.Random) -> dict[PeerId, SignedRecord]:
        """Return valid records of at most `limit` peers under a key: from one storer, starting at a random peer id."""
        storers = await self._network.nearest(key, READERS)
        if not storers:
            return {}
        storer, start = rng.choice(storers), Identity(rng.randbytes(32)).peer_id
        found = list((await self._page(storer, Find(key, after=start, limit=limit))).records)[:limit]
        if len(found) < limit:
            found += (await self._page(storer, Find(key, limit=limit - len(found)))).records[: limit - len(found)]
        return self._verified.latest(key, found, self._now())

    def verified(self, record: SignedRecord) -> bool:
        """Whether a record that reached us some other way is valid and not expired."""
        now = self._now()
        return record.expiry > now and self._verified.is_good(record, now)

    def forged(self, record: SignedRecord) -> bool:
        """Whether a record is wrong in its signature alone: whoever passes it on forged it or did not check it."""
        return why_refused(record, self._now()) == WRONG_SIGNATURE

    async def _find_at(self, peer: PeerId, key: str) -> list[SignedRecord]:
        if peer == self._network.peer:
            return self.kept.find(key, self._now())
        found: list[SignedRecord] = []
        for _ in range(MAX_PAGES):
            page = await self._page(peer, Find(key, after=found[-1].peer if found else ""))
            found.extend(page.records)
            if not page.more or not page.records or len(found) >= MAX_RECORDS_PER_KEY:
                break
        return found

    async def _page(self, peer: PeerId, request: Find) -> FoundRecords:
        """Return what a storer has, or nothing if it does not answer."""
        if peer == self._network.peer:
            return self.serve_find(request)
        try:
            return await self._ask(peer, request, FoundRecords)
        except PeerError:
            return FoundRecords(())

    async def _ask(self, peer: PeerId, request: Message, expected: type[A]) -> A:
        return decode_answer(await self._network.call(peer, seal(request), CALL_TIMEOUT), expected)

    # ---- storing for others ----

    def serve_store(self, owner: PeerId, request: Store) -> Stored:
        verdicts = []
        for record in request.records:
            verdict, reason = self.kept.put(record, owner, self._now())
            if verdict == "refused":
                raise PeerMisbehaved(f"record refused: {reason}")
            verdicts.append(verdict)
        return Stored(tuple(verdicts))

    def serve_find(self, request: Find) -> FoundRecords:
        records = [
            record
            for record in self.kept.find(request.key, self._now(), request.newer_than)
            if record.peer > request.after
        ]
        count = min(request.limit, PAGE_RECORDS)
        return FoundRecords(tuple(records[:count]), more=len(records) > count)
