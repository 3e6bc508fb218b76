"""Cuts a data set into shards: pieces that are small enough to travel and named by the hash of their content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from .rows import Rows, listed
from .rows import SampleNumbers as SampleNumbers

ShardId = NewType("ShardId", str)
Columns = Mapping[str, NDArray[np.generic]]  # of equal length; row i of all of them is sample i

SHARD_SAMPLES = 100
ID_BYTES = 16
BLOCK = 4096  # samples hashed at a time


@dataclass(frozen=True)
class Shard:
    """Some samples of a data set: the hash of their content and their row numbers. Has no data itself."""

    id: ShardId
    indices: Rows

    def __len__(self) -> int:
        return len(self.indices)


def cut_shards(samples: Columns, seed: int, size: int = SHARD_SAMPLES) -> list[Shard]:
    """The whole data set in shards of about `size` samples, each a random mixture.

    Equal data, seed and size give equal shards on every machine. Every sample is in exactly one shard, and the sizes
    differ by at most one. The data is not copied.
    """
    count = len(next(iter(samples.values()))) if samples else 0
    return [Shard(shard_id(samples, piece), piece) for piece in cut_rows(count, seed, size)]


def cut_rows(count: int, seed: int, size: int = SHARD_SAMPLES) -> list[SampleNumbers]:
    """The rows of each shard that `cut_shards` makes of `count` samples, each in ascending order."""
    if count == 0:
        return []
    # numpy promises that raw numbers of a generator never change; `permutation` may differ between versions.
    order = np.argsort(np.random.PCG64(seed).random_raw(count), kind="stable")
    return [np.sort(piece) for piece in np.array_split(order, max(1, round(count / size)))]


def place_id(data: str, number: int) -> ShardId:
    """The id of a shard of data that are not read for it: by the hash of the data and the shard's number there."""
    return ShardId(blake3(f"p2pnode dealt shard 1 {data} {number}".encode()).hexdigest(length=ID_BYTES))


def shard_id(samples: Columns, indices: NDArray[np.int64]) -> ShardId:
    """BLAKE3 of the samples' layout and bytes, columns by name. It does not depend on where the samples are."""
    return columns_id({name: column[indices] for name, column in samples.items()})


def columns_id(columns: Columns) -> ShardId:
    """The id of a shard that consists of all these rows."""
    digest = blake3(b"p2pnode shard 1\0")
    for name in sorted(columns):
        column = columns[name]
        kind = column.dtype.newbyteorder("<").str
        digest.update(f"{name}\0{kind}\0{column.shape[1:]}\0{len(column)}\0".encode())
        digest.update(np.ascontiguousarray(column.astype(kind, copy=False)).reshape(-1).view(np.uint8).data)
    return ShardId(digest.hexdigest(length=ID_BYTES))


def sample_ids(samples: Columns) -> list[bytes]:
    """A hash of each sample's bytes, columns by name: equal samples have equal ids."""
    count = len(next(iter(samples.values()))) if samples else 0
    columns = [samples[name] for name in sorted(samples)]
    found: list[bytes] = []
    for start in range(0, count, BLOCK):
        parts = [np.ascontiguousarray(column[start : start + BLOCK]) for column in columns]
        rows = np.concatenate([part.reshape(len(part), -1).view(np.uint8) for part in parts], axis=1)
        found += [blake3(row.tobytes()).digest(length=ID_BYTES) for row in rows]
    return found


def indices_of(shards: Sequence[Shard]) -> NDArray[np.int64]:
    """The row numbers of all samples of some shards, in ascending order."""
    if not shards:
        return np.empty(0, np.int64)
    return np.sort(np.concatenate([listed(shard.indices) for shard in shards]))
