"""The shards of one node: their states in memory, their files on disk, and one event at a time for each.

What an event leads to is written in order, each write durable before the next; then the state is adopted; only then may
messages leave. A write that fails leaves the state as it was: nobody hears of what is not on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from ..runtime.seams import Seams
from ..wire.ids import Identity
from .files import ShardFiles
from .handoff.messages import AnyMessage
from .handoff.state import DeleteBytes, Drop, HandoffEvent, Lost, PutBytes, Received, ShardState, Write, restarted
from .handoff.step import step
from .samples import SampleLayout, count_samples, decode_samples
from .visits import VisitHistory

Sent = tuple[tuple[str, AnyMessage], ...]
Make = Callable[[], bytes]
NONE = ShardState()


@dataclass
class StoredShard:
    """One shard. `make` gives samples that need no file, because they can be made from the task's own data."""

    state: ShardState = NONE
    size_bytes: int = 0  # of the samples, and how many they are; 0 where they are not here
    samples: int = 0
    make: Make | None = None
    received: bool = False  # its samples came from a peer
    source: str = ""  # the peer this node first heard of it from
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def file_bytes(self) -> int:
        return self.size_bytes if self.state.have and self.make is None else 0


async def _not_known(shard: str) -> bool:
    return False


class ShardStore:
    """Contract: `add_own` before `load`, `load` before anything else. Listeners must not raise."""

    def __init__(self, identity: Identity, seams: Seams, files: ShardFiles, layout: SampleLayout) -> None:
        self.me = identity.peer_id
        self.layout = layout
        self.entries: dict[str, StoredShard] = {}
        self.on_arrival: list[Callable[[str], None]] = []
        self.on_gone: list[Callable[[str], None]] = []
        self._identity = identity
        self._seams = seams
        self._files = files
        self.is_elsewhere: Callable[[str], Awaitable[bool]] = _not_known
        self._looked = 0  # at files, one after the other
        self._histories: dict[str, VisitHistory] = {}  # as they are on disk

    # ---- looking ----

    def state(self, shard: str) -> ShardState:
        entry = self.entries.get(shard)
        return NONE if entry is None else entry.state

    @property
    def used_bytes(self) -> int:
        """What samples take on disk."""
        return sum(entry.file_bytes for entry in self.entries.values())

    @property
    def kept_bytes(self) -> int:
        """What samples take that may not be dropped for want of room."""
        return sum(entry.file_bytes for entry in self.entries.values() if entry.state.record.kept)

    def bytes_from(self, peer: str) -> int:
        """What samples take that this node heard of from a peer, and may not drop."""
        kept = (entry for entry in self.entries.values() if entry.state.record.kept)
        return sum(entry.file_bytes for entry in kept if entry.source == peer)

    def missing_from(self, peer: str) -> int:
        """How many shards a peer told of whose samples are not here."""
        return sum(1 for entry in self.entries.values() if entry.source == peer and not entry.state.have)

    def here(self) -> list[str]:
        return [shard for shard, entry in self.entries.items() if entry.state.have]

    # ---- the beginning ----

    def add_own(self, shard: str, make: Make) -> None:
        """Samples this node brings: made whenever they are needed."""
        self.entries[shard] = StoredShard(make=make)

    async def load(self) -> list[str]:
        """Take in what is on disk; returns the shards that should be there and are not, or are damaged."""
        own = set(self.entries)
        known = await self._seams.disk(self._files.known)
        for shard in sorted({*known, *own}):
            await self._seams.disk(lambda shard=shard: self._load(shard, shard in own))  # type: ignore[misc]
        entries = self.entries.items()
        return [shard for shard, entry in entries if entry.state.record.kept and not entry.state.have]

    def _load(self, shard: str, own: bool) -> None:
        entry = self.entries.setdefault(shard, StoredShard())
        record = self._files.record(shard)
        content = self.content(shard)
        if content is not None:
            entry.size_bytes, entry.samples = len(content), count_samples(content)
        entry.received = not own
        entry.state = restarted(self.me, record, content is not None)

    # ---- samples and visits ----

    def content(self, shard: str) -> bytes | None:
        """The encoded samples, checked; None when they are not there or damaged. Reads the disk."""
        entry = self.entries.get(shard)
        data = entry.make() if entry is not None and entry.make is not None else self._files.samples(shard)
        try:
            if data is not None:
                decode_samples(data, self.layout, shard)
        except ValueError:
            return None
        return data

    def read(self, shard: str) -> dict[str, NDArray[Any]]:
        """The samples; KeyError when they are not here."""
        data = self.content(shard) if self.state(shard).have else None
        if data is None:
            raise KeyError(shard)
        return decode_samples(data, self.layout, shard)

    def history(self, shard: str) -> VisitHistory:
        """A shard's visits; read from disk once."""
        if shard not in self._histories:
            self._histories[shard] = self._files.history(shard)
        return self._histories[shard]

    def put_history(self, history: VisitHistory) -> None:
        self._files.put_history(history)
        self._histories[history.shard] = history

    async def look_after(self, count: int) -> list[str]:
        """Check that all files are there and the next few whole; what is not counts as lost here, and is returned."""
        lost = [shard for shard in await self._seams.disk(lambda: self._missing(count)) if self.state(shard).have]
        for shard in lost:
            await self.do(shard, Lost())
        return lost

    def _missing(self, count: int) -> list[str]:
        files, here = self._files.with_samples(), [shard for shard in self.here() if self.entries[shard].make is None]
        some = [here[(self._looked + place) % len(here)] for place in range(min(count, len(here)))]
        self._looked += count
        return [shard for shard in here if shard not in files or (shard in some and self.content(shard) is None)]

    async def make_room(self, size_bytes: int, room_bytes: int) -> bool:
        """Drop what is only cache, oldest first, until so much more fits; False when it does not fit."""
        cache = [shard for shard, entry in self.entries.items() if entry.file_bytes and not entry.state.record.kept]
        for shard in cache:
            if self.used_bytes + size_bytes <= room_bytes:
                break
            await self.drop(shard)
        return self.used_bytes + size_bytes <= room_bytes

    async def drop(self, shard: str) -> None:
        """Delete bytes that are not kept, if they are elsewhere."""
        if not self.state(shard).record.kept and await self.is_elsewhere(shard):
            await self.do(shard, Drop())

    # ---- events ----

    async def do(self, shard: str, event: HandoffEvent, content: bytes = b"") -> Sent:
        """Let something happen to a shard; the messages it leads to. LocalProblem when the disk will not have it.

        Whoever waits for it may be cancelled; what was begun is ended all the same.
        """
        return await asyncio.shield(asyncio.ensure_future(self._do(shard, event, content)))

    async def _do(self, shard: str, event: HandoffEvent, content: bytes) -> Sent:
        entry = self.entries.get(shard)
        if entry is None:
            entry = self.entries[shard] = StoredShard(source=event.sender if isinstance(event, Received) else "")
        async with entry.lock:
            before = entry.state
            after, writes, messages = step(self._identity, before, event)
            if writes:
                await self._seams.disk(lambda: self._write(shard, writes, content))
            entry.state = after
            self._note_samples(shard, entry, before.have, content)
        if after is not before:
            entry.changed.set()
            entry.changed = asyncio.Event()
        return messages

    def _note_samples(self, shard: str, entry: StoredShard, had: bool, content: bytes) -> None:
        if entry.state.have == had:
            return
        entry.size_bytes, entry.samples = len(content), count_samples(content) if content else 0
        if entry.state.have:
            entry.received = True
        else:
            entry.make = None
        for listener in self.on_arrival if entry.state.have else self.on_gone:
            listener(shard)

    def _write(self, shard: str, writes: tuple[Write, ...], content: bytes) -> None:
        for write in writes:
            if isinstance(write, PutBytes):
                self._files.put_samples(shard, content)
            elif isinstance(write, DeleteBytes):
                self._files.delete_samples(shard)
            else:
                self._files.put_record(shard, write.record)

    async def wait_for_change(self, shard: str) -> None:
        """Until the shard's state is another one."""
        await self.entries[shard].changed.wait()
