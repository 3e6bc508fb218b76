"""The shards of one node: their states in memory and their files on disk.

`ShardStore.apply` lets one event happen to a shard. Its writes are made in order, each durable before the next; then
the new state counts; only then are messages and fetches, the effects of the event, returned to be carried out. If a
write fails, the state stays as it was, so that nobody hears of what is not on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ..runtime.seams import Seams
from ..storage.checked import read_or_set_aside, set_aside, write_checked
from ..storage.files import Storage
from ..wire.errors import Damaged
from ..wire.ids import Identity
from .handoff.messages import AnyMessage
from .handoff.state import (
    NOTHING,
    DeleteBytes,
    HandoffEvent,
    PutBytes,
    Received,
    Record,
    ShardState,
    Write,
    decode_record,
    encode_record,
    restarted,
)
from .handoff.step import step
from .samples import SampleLayout, count_samples, decode_samples
from .visits import VisitHistory, decode_history, encode_history

SAMPLES, RECORD, VISITS = ".samples", ".record", ".visits"
UNKNOWN = ShardState()

Messages = tuple[tuple[str, AnyMessage], ...]  # each with the peer it is for
MakeSamples = Callable[[], bytes]  # ValueError when samples cannot be made any more


class Effects(NamedTuple):
    """What is left to do after an event: messages to send, and whether to fetch the shard's samples."""

    messages: Messages = ()
    fetch: bool = False


class ShardFiles:
    """The files of one job's shards: samples, handoff record and visit history.

    A damaged file is set aside and reported, and then counts as missing.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder

    def known(self) -> list[str]:
        """Shards that have samples or a record on disk."""
        return sorted(self._having(SAMPLES, RECORD))

    def with_samples(self) -> set[str]:
        """Shards that have samples on disk."""
        return self._having(SAMPLES)

    def _having(self, *kinds: str) -> set[str]:
        return {name.partition(".")[0] for name in self._storage.names(self._folder) if name.endswith(kinds)}

    def samples(self, shard: str) -> bytes | None:
        try:
            return self._storage.read(self._name(shard, SAMPLES))
        except Damaged:
            self.set_samples_aside(shard, "it is a directory")
            return None

    def set_samples_aside(self, shard: str, reason: str) -> None:
        """Keep damaged samples, which may be the only ones left, under another name."""
        name, lost = self._name(shard, SAMPLES), "its samples are fetched again if somebody else has them"
        set_aside(self._storage, name, f"{self._storage.path(name)} is damaged ({reason})", lost)

    def put_samples(self, shard: str, data: bytes) -> None:
        self._storage.write(self._name(shard, SAMPLES), data)

    def delete_samples(self, shard: str) -> None:
        self._storage.delete(self._name(shard, SAMPLES))

    def record(self, shard: str) -> Record:
        """The last record written; an empty one when it is missing or damaged, because peers know the rest."""
        lost = "who holds the shard is learned again from peers"
        return read_or_set_aside(self._storage, self._name(shard, RECORD), decode_record, lost) or NOTHING

    def put_record(self, shard: str, record: Record) -> None:
        write_checked(self._storage, self._name(shard, RECORD), encode_record(record))

    def history(self, shard: str) -> VisitHistory:
        lost = "the shard's visits are counted anew"
        found = read_or_set_aside(self._storage, self._name(shard, VISITS), decode_history, lost)
        return found or VisitHistory(shard)

    def put_history(self, history: VisitHistory) -> None:
        write_checked(self._storage, self._name(history.shard, VISITS), encode_history(history))

    def _name(self, shard: str, kind: str) -> str:
        return f"{self._folder}/{shard}{kind}"


@dataclass
class StoredShard:
    """One shard. `make` gives samples that need no file, because they can be made from the task's own data."""

    state: ShardState = UNKNOWN
    size_bytes: int = 0  # of the samples; 0 when they are not here
    samples: int = 0  # their number; 0 when they are not here
    make: MakeSamples | None = None
    received: bool = False  # the samples came from a peer
    source: str = ""  # the peer from which this node first heard of the shard
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def file_bytes(self) -> int:
        return self.size_bytes if self.state.have and self.make is None else 0


class ShardStore:
    """Call `add_own` before `load`, and `load` before anything else."""

    def __init__(self, identity: Identity, seams: Seams, files: ShardFiles, layout: SampleLayout) -> None:
        self.entries: dict[str, StoredShard] = {}
        self._identity = identity
        self._seams = seams
        self._files = files
        self._layout = layout
        self._checked = 0  # files checked so far, one after the other
        self._histories: dict[str, VisitHistory] = {}  # as they are on disk

    # ---- what is here ----

    def state(self, shard: str) -> ShardState:
        entry = self.entries.get(shard)
        return UNKNOWN if entry is None else entry.state

    def here(self) -> list[str]:
        """Shards whose samples are here."""
        return [shard for shard, entry in self.entries.items() if entry.state.have]

    def cached(self) -> list[str]:
        """Shards whose samples have a file here and may be dropped when room is needed, oldest first."""
        return [shard for shard, entry in self.entries.items() if entry.file_bytes and not entry.state.record.kept]

    @property
    def used_bytes(self) -> int:
        """Disk space that samples take."""
        return sum(entry.file_bytes for entry in self.entries.values())

    @property
    def kept_bytes(self) -> int:
        """Disk space of samples that may not be dropped."""
        return sum(entry.file_bytes for entry in self.entries.values() if entry.state.record.kept)

    def kept_bytes_from(self, peer: str) -> int:
        """Disk space of samples that may not be dropped, of shards this node first heard of from `peer`."""
        kept = (entry for entry in self.entries.values() if entry.state.record.kept)
        return sum(entry.file_bytes for entry in kept if entry.source == peer)

    def missing_from(self, peer: str) -> int:
        """How many shards without samples here this node first heard of from `peer`."""
        return sum(1 for entry in self.entries.values() if entry.source == peer and not entry.state.have)

    # ---- the start ----

    def add_own(self, shard: str, make: MakeSamples) -> None:
        """A shard of this node's own data, whose samples are made whenever they are needed."""
        self.entries[shard] = StoredShard(make=make)

    async def load(self) -> list[str]:
        """Read what is on disk. Returns the shards whose samples should be here and are missing or damaged."""
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
        entry.state = restarted(self._identity.peer_id, record, content is not None)

    # ---- samples and visits ----

    def content(self, shard: str) -> bytes | None:
        """The encoded samples, checked; None when they are missing or damaged. Reads the disk."""
        entry = self.entries.get(shard)
        make = None if entry is None else entry.make
        try:
            data = self._files.samples(shard) if make is None else make()
            if data is not None:
                decode_samples(data, self._layout, shard)
        except ValueError as error:
            if make is None:
                self._files.set_samples_aside(shard, str(error))
            return None
        return data

    def read(self, shard: str) -> dict[str, NDArray[Any]]:
        """The samples; KeyError when they are not here. Reads the disk."""
        data = self.content(shard) if self.state(shard).have else None
        if data is None:
            raise KeyError(shard)
        return decode_samples(data, self._layout, shard)

    def history(self, shard: str) -> VisitHistory:
        """The visits of a shard. Reads the disk once."""
        if shard not in self._histories:
            self._histories[shard] = self._files.history(shard)
        return self._histories[shard]

    def put_history(self, history: VisitHistory) -> None:
        self._files.put_history(history)
        self._histories[history.shard] = history

    async def find_damaged(self, count: int) -> list[str]:
        """Shards whose file is missing, and damaged ones among the next `count` files."""
        return [shard for shard in await self._seams.disk(lambda: self._damaged(count)) if self.state(shard).have]

    def _damaged(self, count: int) -> list[str]:
        files, here = self._files.with_samples(), [shard for shard in self.here() if self.entries[shard].make is None]
        some = [here[(self._checked + place) % len(here)] for place in range(min(count, len(here)))]
        self._checked += count
        return [shard for shard in here if shard not in files or (shard in some and self.content(shard) is None)]

    # ---- events ----

    async def apply(self, shard: str, event: HandoffEvent, content: bytes = b"") -> Effects:
        """Let an event happen to a shard; LocalProblem when the disk fails, and then nothing has happened.

        `content` is the samples of BytesArrived. A cancelled caller does not interrupt what was begun.
        """
        return await asyncio.shield(asyncio.ensure_future(self._apply(shard, event, content)))

    async def _apply(self, shard: str, event: HandoffEvent, content: bytes) -> Effects:
        entry = self.entries.get(shard)
        if entry is None:
            entry = self.entries[shard] = StoredShard(source=event.sender if isinstance(event, Received) else "")
        async with entry.lock:
            before = entry.state
            after, writes, messages, fetch = step(self._identity, before, event)
            if writes:
                await self._seams.disk(lambda: self._write(shard, writes, content))
            entry.state = after
            if after.have != before.have:
                entry.size_bytes, entry.samples = len(content), count_samples(content) if content else 0
                entry.received, entry.make = entry.received or after.have, None
        if after is not before:
            entry.changed.set()
            entry.changed = asyncio.Event()
        return Effects(messages, fetch)

    def _write(self, shard: str, writes: tuple[Write, ...], content: bytes) -> None:
        for write in writes:
            if isinstance(write, PutBytes):
                self._files.put_samples(shard, content)
            elif isinstance(write, DeleteBytes):
                self._files.delete_samples(shard)
            else:
                self._files.put_record(shard, write.record)

    async def wait_for_change(self, shard: str) -> None:
        """Wait until the state of the shard changes."""
        await self.entries[shard].changed.wait()
