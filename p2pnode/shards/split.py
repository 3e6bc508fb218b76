"""Who trains on what: shares claimed among the peers that are there, or set for an experiment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from ..wire.errors import UsageError
from .shard import SampleNumbers, Shard

SPLITS = ("iid", "parts", "dirichlet:ALPHA", "labels:K")


def claimed(shards: Iterable[Shard], peers: Iterable[str], me: str) -> list[Shard]:
    """The shards that are `me`'s among `peers` (and me), by rendezvous hashing.

    Contract: all who see the same peers agree; each shard has one owner; when a peer leaves only its shards move, and
    when one comes only the shards it gets do.
    """
    everyone = sorted({*peers, me})
    return [shard for shard in shards if owner(shard.id, everyone) == me]


def owner(shard: str, peers: Sequence[str]) -> str:
    """The peer whose hash with the shard is the greatest."""
    return max(peers, key=lambda peer: (blake3(f"{shard}/{peer}".encode()).digest(length=8), peer))


@dataclass(frozen=True)
class Split:
    """How an experiment deals out samples. `amount` is alpha of `dirichlet`, the count of `labels`."""

    how: Literal["iid", "parts", "dirichlet", "labels"]
    amount: float = 0.0

    def __str__(self) -> str:
        return f"{self.how}:{self.amount:g}" if self.amount else self.how


def parse_split(text: str) -> Split:
    """`iid`, `parts`, `dirichlet:ALPHA` or `labels:K`; UsageError says what is wrong with anything else."""
    how, colon, amount = text.strip().lower().partition(":")
    if how in ("iid", "parts") and not colon:
        return Split("iid" if how == "iid" else "parts")
    if how == "dirichlet":
        return Split("dirichlet", _amount(text, amount, "dirichlet:0.3", whole=False))
    if how == "labels":
        return Split("labels", _amount(text, amount, "labels:2", whole=True))
    raise UsageError(f"--split {text[:40]!r} is not known; one of {', '.join(SPLITS)}")


def _amount(text: str, written: str, example: str, whole: bool) -> float:
    try:
        amount = float(int(written)) if whole else float(written)
    except ValueError:
        amount = math.nan
    if not math.isfinite(amount) or not 0 < amount <= 1e6:
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"--split {text[:40]!r} needs {kind} above zero, as in {example}")
    return amount


def split_rows(labels: NDArray[np.generic] | None, count: int, n: int, how: Split, seed: int) -> list[SampleNumbers]:
    """Deal `count` samples (with one label each, where needed) to `n` nodes; the same seed deals the same.

    iid: equal random parts. parts: consecutive equal parts. dirichlet: each label is dealt in proportions drawn from
    Dirichlet(alpha); every node gets at least one sample. labels: each node gets all its samples from K labels, which
    it shares with the other nodes that have them; labels nobody was given are left out (n·K below their number).
    """
    if n > count:
        raise UsageError(f"{count} samples cannot be dealt to {n} nodes; use fewer nodes or more data")
    rng = np.random.Generator(np.random.PCG64(seed))
    if how.how == "parts":
        return list(np.array_split(np.arange(count), n))
    if how.how == "iid":
        return [np.sort(part) for part in np.array_split(rng.permutation(count), n)]
    if labels is None:
        raise UsageError(f"--split {how} needs samples with labels, and this task's have none; use iid or parts")
    groups = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
    if how.how == "dirichlet":
        return _fill_empty(_by_proportion(groups, n, how.amount, rng))
    return _by_labels(groups, n, int(how.amount), rng)


def _by_proportion(groups: list[SampleNumbers], n: int, alpha: float, rng: np.random.Generator) -> list[SampleNumbers]:
    parts: list[list[SampleNumbers]] = [[] for _ in range(n)]
    for group in groups:
        shares = rng.dirichlet(np.full(n, alpha))
        if not np.isfinite(shares).all():  # so small an alpha that all of it underflows: one node takes the label
            shares = np.eye(n)[rng.integers(n)]
        edges = np.round(np.cumsum(shares)[:-1] * len(group)).astype(np.int64)
        for part, piece in zip(parts, np.split(group, edges), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]


def _fill_empty(parts: list[SampleNumbers]) -> list[SampleNumbers]:
    """Give a node without samples one of the largest part's."""
    for place, part in enumerate(parts):
        if len(part) == 0:
            largest = max(range(len(parts)), key=lambda number: len(parts[number]))
            parts[place], parts[largest] = parts[largest][-1:], parts[largest][:-1]
    return parts


def _by_labels(groups: list[SampleNumbers], n: int, k: int, rng: np.random.Generator) -> list[SampleNumbers]:
    if k > len(groups):
        raise UsageError(f"--split labels:{k} asks for more labels than there are ({len(groups)})")
    holders: list[list[int]] = [[] for _ in groups]
    for node in range(n):  # the labels held least so far, ties by lot: all are covered before one is doubled
        lots = rng.permutation(len(groups))
        chosen = sorted(range(len(groups)), key=lambda label: (len(holders[label]), lots[label]))[:k]
        for label in chosen:
            holders[label].append(node)
    parts: list[list[SampleNumbers]] = [[np.empty(0, np.int64)] for _ in range(n)]
    for group, nodes in zip(groups, holders, strict=True):
        for node, piece in zip(nodes, np.array_split(group, max(1, len(nodes))), strict=False):
            parts[node].append(piece)
    return _fill_empty([np.sort(np.concatenate(part)) for part in parts])
