"""Cuts a node's own data into shards that may travel."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from ...shards.rows import Rows, RowSet, listed
from ...shards.samples import MAX_SHARD_BYTES, encode_samples
from ...shards.shard import SHARD_SAMPLES, Columns, SampleNumbers, Shard, columns_id, cut_rows
from ...tasks.data import Data

OFFERED_SAMPLES = 20_000  # that are offered of data that must be read for it,
OFFERED_BYTES = 256 << 20  # and no more than this: they are read when the node starts


def own_shards(data: Data, rows: Rows, seed: int) -> Iterator[tuple[Shard, Columns]]:
    """Heavy. Each shard with its samples; ValueError when they are of a type that cannot travel.

    Of data that must be read for it only a part is offered. Rows that cannot be read are left out.
    """
    sample_bytes, first = max(1, data.sample_bytes), True
    size = max(1, min(SHARD_SAMPLES, MAX_SHARD_BYTES // 2 // sample_bytes))
    for piece in _offered(data, rows, seed, size):
        found, kept = data.read(torch.from_numpy(piece))
        good = piece if kept is None else piece[kept.numpy()]
        if not len(good):
            continue
        columns = {name: column.numpy() for name, column in found.items()}
        if first:
            encode_samples(columns)  # what is wrong with the columns shows in the first shard
            first = False
        yield Shard(columns_id(columns), good), columns


def _offered(data: Data, rows: Rows, seed: int, size: int) -> list[SampleNumbers]:
    """The rows of each shard that is offered to others."""
    if data.in_memory:
        some = listed(rows)
        return [some[piece] for piece in cut_rows(len(some), seed, size)]
    most = max(1, min(OFFERED_SAMPLES, OFFERED_BYTES // max(1, data.sample_bytes)) // size)
    some = rows.working_set(seed, 0) if isinstance(rows, RowSet) else rows
    return [some[piece] for piece in cut_rows(len(some), seed, size)[:most]]


def reading(data: Data, rows: SampleNumbers) -> Callable[[], bytes]:
    """What gives the encoded samples of a shard whenever they are needed; BadData when a row cannot be read."""

    def read() -> bytes:
        return encode_samples({name: column.numpy() for name, column in data.rows(torch.from_numpy(rows)).items()})

    return read
