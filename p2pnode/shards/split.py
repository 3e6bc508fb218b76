"""Divides data among nodes: by rendezvous hashing among the peers present, or in a fixed way for an experiment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from ..config.split import Split, SplitPart
from ..wire.errors import UsageError
from .rows import LISTED, Rows, RowSet, row_range
from .shard import SampleNumbers, Shard


def claimed(shards: Iterable[Shard], peers: Iterable[str], me: str) -> list[Shard]:
    """The shards that belong to `me` among `peers` and me, by rendezvous hashing.

    Nodes that see the same peers agree, and each shard has one owner. When a peer leaves, only its shards move; when
    one comes, only the shards that it gets.
    """
    everyone = sorted({*peers, me})
    return [shard for shard in shards if owner(shard.id, everyone) == me]


def owner(shard: str, peers: Sequence[str]) -> str:
    """The peer whose hash together with the shard is the greatest."""
    return max(peers, key=lambda peer: (blake3(f"{shard}/{peer}".encode()).digest(length=8), peer))


def split_rows(labels: NDArray[np.generic] | None, count: int, n: int, how: Split, seed: int) -> list[SampleNumbers]:
    """Divide `count` samples among `n` nodes; returns the rows of each node. Equal seeds give equal parts.

    iid: equal random parts. parts: consecutive equal parts. dirichlet: each label is divided in proportions drawn from
    Dirichlet(alpha), and every node gets at least one sample. labels: each node gets samples of K labels, and shares
    them with the other nodes of those labels; if n·K is less than the number of labels, some are left out.
    """
    if n > count:
        raise UsageError(f"{count} samples cannot be dealt to {n} nodes; use fewer nodes or more data")
    rng = np.random.Generator(np.random.PCG64(seed))
    if how.how == "parts":
        return list(np.array_split(np.arange(count), n))
    if how.how == "iid":
        return [np.sort(part) for part in np.array_split(rng.permutation(count), n)]
    if labels is None:
        raise UsageError(
            f"--split {how} needs samples with labels, and this task's have none; "
            "use iid or parts (a data set that is read by index lists its labels as `targets`)"
        )
    groups = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    if how.how == "dirichlet":
        return _fill_empty(_by_proportion(groups, n, how.amount, rng))
    return _by_labels(groups, n, int(how.amount), rng)


def check_stream_split(how: Split | None) -> None:
    """UsageError when a stream cannot be split so: nobody knows its samples before they come."""
    if how is not None and how.how != "iid":
        raise UsageError(f"--split {how} is not for streams: each node reads one by a seed of its own; use iid")


def part_rows(labels: NDArray[np.generic] | None, count: int, how: Split, part: SplitPart) -> Rows:
    """The rows of one part, as `split_rows` divides them; of data that are too many to list, every n-th is iid."""
    if count <= LISTED or how.how not in ("iid", "parts"):
        return split_rows(labels, count, part.count, how, part.seed)[part.index]
    if how.how == "parts":
        return row_range(count * part.index // part.count, count * (part.index + 1) // part.count)
    return RowSet(0, count, part.count, np.array([part.index]))


def _by_proportion(groups: list[SampleNumbers], n: int, alpha: float, rng: np.random.Generator) -> list[SampleNumbers]:
    parts: list[list[SampleNumbers]] = [[] for _ in range(n)]
    for group in groups:
        shares = rng.dirichlet(np.full(n, alpha))
        if not np.isfinite(shares).all():  # alpha is so small that everything underflows: one node takes the label
            shares = np.eye(n)[rng.integers(n)]
        edges = np.round(np.cumsum(shares)[:-1] * len(group)).astype(np.int64)
        for part, piece in zip(parts, np.split(group, edges), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]


def _fill_empty(parts: list[SampleNumbers]) -> list[SampleNumbers]:
    """Give every node without samples one from the largest part."""
    for place, part in enumerate(parts):
        if len(part) == 0:
            largest = max(range(len(parts)), key=lambda number: len(parts[number]))
            parts[place], parts[largest] = parts[largest][-1:], parts[largest][:-1]
    return parts


def _by_labels(groups: list[SampleNumbers], n: int, k: int, rng: np.random.Generator) -> list[SampleNumbers]:
    if k > len(groups):
        raise UsageError(f"--split labels:{k} asks for more labels than there are ({len(groups)})")
    holders: list[list[int]] = [[] for _ in groups]
    for node in range(n):  # the labels with fewest nodes so far, ties at random: all are used before one is used twice
        lots = rng.permutation(len(groups))
        chosen = sorted(range(len(groups)), key=lambda label: (len(holders[label]), lots[label]))[:k]
        for label in chosen:
            holders[label].append(node)
    parts: list[list[SampleNumbers]] = [[np.empty(0, np.int64)] for _ in range(n)]
    for group, nodes in zip(groups, holders, strict=True):
        for node, piece in zip(nodes, np.array_split(group, max(1, len(nodes))), strict=False):
            parts[node].append(piece)
    return _fill_empty([np.sort(np.concatenate(part)) for part in parts])
