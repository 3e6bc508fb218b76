"""What a queues job has on disk: for each queue the log, the lease, and this node's items that are not safe yet.

Items are appended to a journal before they are sent. A save writes everything, and begins a new journal before that, so
that an item made meanwhile is in one of the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from blake3 import blake3

from ...storage.checked import read_or_set_aside, write_checked
from ...storage.files import Storage
from ...wire.types import Seconds
from ..leases.lease import Lease
from .changes import QueuesChange, decode_change, encode_change
from .items import Item
from .model import QueueModel

_HASH = 8  # bytes of an item's checksum in the journal
_LENGTH = 4


class QueueState(NamedTuple):
    """The files of one queue, as they are to be written."""

    name: str
    log: bytes
    outbox: bytes
    lease: bytes
    journal: int  # the journals before this one are no longer needed


class QueueFiles:
    """Reads and writes the files of a queues job. LocalProblem when the disk fails."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._journals: dict[str, int] = {}

    def collect(self, model: QueueModel) -> QueueState:
        """What is to be written of one queue, as it is now."""
        self._journals[model.name] = journal = self._journals.get(model.name, 0) + 1
        lease = b"" if model.watch.lease is None else msgspec.msgpack.encode(model.watch.lease)
        return QueueState(model.name, model.log.snapshot(), model.outbox.state(), lease, journal)

    def write(self, states: Sequence[QueueState]) -> None:
        for state in states:
            for what, content in (("log", state.log), ("outbox", state.outbox), ("lease", state.lease)):
                if content:
                    write_checked(self._storage, self._file(state.name, what), content)
            for number in self._journals_of(state.name):
                if number < state.journal:
                    self._storage.delete(self._file(state.name, f"items{number}"))

    def note_item(self, queue: str, item: Item) -> None:
        """Append an item to the journal, durably."""
        data = msgspec.msgpack.encode(item)
        framed = len(data).to_bytes(_LENGTH, "big") + blake3(data).digest(length=_HASH) + data
        self._storage.append(self._file(queue, f"items{self._journals.get(queue, 0)}"), framed)

    def note_lease(self, queue: str, lease: Lease) -> None:
        write_checked(self._storage, self._file(queue, "lease"), msgspec.msgpack.encode(lease))

    def note_change(self, change: QueuesChange) -> None:
        write_checked(self._storage, f"{self._folder}/change", encode_change(change))

    def load_change(self) -> QueuesChange | None:
        """The founder's latest change that was known here; None where there was none."""
        lost = "members tell the founder's changes again"
        return read_or_set_aside(self._storage, f"{self._folder}/change", decode_change, lost)

    def load(self, models: Iterable[QueueModel], now: Seconds) -> bool:
        """Puts what was saved into the models; returns whether there was anything. Damaged files are set aside."""
        found = False
        for model in models:
            found |= self._read(model, "log", lambda data, model=model: model.log.adopt(data, saved_here=True)) or False
            self._read(model, "outbox", model.outbox.restore)
            lease = self._read(model, "lease", lambda data: msgspec.msgpack.decode(data, type=Lease))
            if lease is not None:
                model.watch.restore(lease, now)
                found = True
            for number in self._journals_of(model.name):
                self._replay(model, number)
                self._journals[model.name] = number + 1
        return found

    def _read(self, model: QueueModel, what: str, decode):  # type: ignore[no-untyped-def]
        lost = f"the queue {model.name} goes on with what other members have"
        return read_or_set_aside(self._storage, self._file(model.name, what), decode, lost)

    def _replay(self, model: QueueModel, number: int) -> None:
        """Put the items of a journal back; a torn end is what a crash leaves."""
        data, at = self._storage.read(self._file(model.name, f"items{number}")) or b"", 0
        while at + _LENGTH + _HASH <= len(data):
            size = int.from_bytes(data[at : at + _LENGTH], "big")
            digest, start = data[at + _LENGTH : at + _LENGTH + _HASH], at + _LENGTH + _HASH
            content, at = data[start : start + size], start + size
            if len(content) < size or blake3(content).digest(length=_HASH) != digest:
                return
            model.outbox.put_back(msgspec.msgpack.decode(content, type=Item))

    def _journals_of(self, queue: str) -> list[int]:
        before = f"{queue}.items"
        names = (name.removeprefix(before) for name in self._storage.names(self._folder) if name.startswith(before))
        return sorted(int(number) for number in names if number.isdigit())

    def _file(self, queue: str, what: str) -> str:
        return f"{self._folder}/{queue}.{what}"
