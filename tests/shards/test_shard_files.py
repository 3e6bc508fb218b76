"""Shards on disk: what was written is read, what is damaged counts as not there."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from p2pnode.runtime.seams import Seams, inline
from p2pnode.shards.handoff.certificate import claim
from p2pnode.shards.handoff.state import NOTHING, Record
from p2pnode.shards.samples import encode_samples, sample_layout
from p2pnode.shards.shard import columns_id
from p2pnode.shards.store import ShardFiles, ShardStore
from p2pnode.shards.visits import VisitHistory, with_visit
from p2pnode.storage.files import DiskStorage, MemoryStorage, Storage
from p2pnode.wire.ids import Identity

ME = Identity(b"a" * 32)
SHARD, OTHER = "0" * 32, "1" * 32


@pytest.fixture(params=["memory", "disk"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return MemoryStorage() if request.param == "memory" else DiskStorage(tmp_path)


def test_samples_records_and_visits_are_kept_apart(storage: Storage) -> None:
    files = ShardFiles(storage, "runs/x/shards")
    assert (files.known(), files.samples(SHARD), files.record(SHARD)) == ([], None, NOTHING)
    record = Record(claim(ME, "run", SHARD, (ME.peer_id,)), 1, kept=True)
    history = with_visit(ME, VisitHistory(OTHER), "m", 1, 0.1, 0.5, 10.0)
    files.put_samples(SHARD, b"samples")
    files.put_record(SHARD, record)
    files.put_record(OTHER, record)
    files.put_history(history)
    again = ShardFiles(storage, "runs/x/shards")
    assert again.known() == [SHARD, OTHER] and again.with_samples() == {SHARD}
    assert (again.samples(SHARD), again.record(SHARD), again.history(OTHER)) == (b"samples", record, history)
    assert again.history(SHARD) == VisitHistory(SHARD)
    again.delete_samples(SHARD)
    assert again.samples(SHARD) is None and again.record(SHARD) == record
    assert storage.used("runs") > 0


def test_what_is_damaged_counts_as_not_there(storage: Storage) -> None:
    files = ShardFiles(storage, "runs/x/shards")
    storage.write(f"runs/x/shards/{SHARD}.record", b"\xc1")
    storage.write(f"runs/x/shards/{SHARD}.visits", b"\xc1")
    assert files.record(SHARD) == NOTHING and files.history(SHARD) == VisitHistory(SHARD)


def test_own_samples_that_cannot_be_made_any_more_are_not_here() -> None:
    """A data set may lose rows while the node runs: then a shard of it is not given, and nothing else happens."""
    columns = {"x": np.arange(6, dtype=np.uint8).reshape(3, 2)}
    content, shard, there = encode_samples(columns), columns_id(columns), [True]

    def make() -> bytes:
        if not there[0]:
            raise ValueError("row 3 cannot be read: train.bin was cut off")
        return content

    storage = MemoryStorage()
    seams = Seams(SimpleNamespace(time=lambda: 0.0, monotonic=lambda: 0.0), random.Random(1), storage, inline)
    store = ShardStore(ME, seams, ShardFiles(storage, "runs/x/shards"), sample_layout(columns))
    store.add_own(shard, make)
    asyncio.run(store.load())
    assert store.content(shard) == content
    there[0] = False
    assert store.content(shard) is None
