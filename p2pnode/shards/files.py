"""Shards on disk: for each its samples, the record of whose it is, and its visit history. Each whole or not there."""

from __future__ import annotations

from ..storage.files import Storage
from .handoff.state import NOTHING, Record, decode_record, encode_record
from .visits import VisitHistory, decode_history, encode_history

SAMPLES, RECORD, VISITS = ".samples", ".record", ".visits"


class ShardFiles:
    """The shards of one run in one folder. What cannot be read counts as not there."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder

    def known(self) -> list[str]:
        """Shards of which anything but visits is there."""
        names = self._storage.names(self._folder)
        return sorted({name.partition(".")[0] for name in names if name.endswith((SAMPLES, RECORD))})

    def with_samples(self) -> set[str]:
        """Shards whose samples have a file."""
        return {name.partition(".")[0] for name in self._storage.names(self._folder) if name.endswith(SAMPLES)}

    def samples(self, shard: str) -> bytes | None:
        return self._storage.read(self._name(shard, SAMPLES))

    def put_samples(self, shard: str, data: bytes) -> None:
        self._storage.write(self._name(shard, SAMPLES), data)

    def delete_samples(self, shard: str) -> None:
        self._storage.delete(self._name(shard, SAMPLES))

    def record(self, shard: str) -> Record:
        """What was written last; nothing when there is none, or it is damaged: peers know the rest."""
        try:
            return decode_record(self._storage.read(self._name(shard, RECORD)) or b"")
        except ValueError:
            return NOTHING

    def put_record(self, shard: str, record: Record) -> None:
        self._storage.write(self._name(shard, RECORD), encode_record(record))

    def history(self, shard: str) -> VisitHistory:
        try:
            return decode_history(self._storage.read(self._name(shard, VISITS)) or b"")
        except ValueError:
            return VisitHistory(shard)

    def put_history(self, history: VisitHistory) -> None:
        self._storage.write(self._name(history.shard, VISITS), encode_history(history))

    def _name(self, shard: str, kind: str) -> str:
        return f"{self._folder}/{shard}{kind}"
