"""What the peers of benchmarks.shards begin with: Fashion-MNIST in shards, dealt out, some of its labels wrong."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from p2pnode.config.split import parse_split
from p2pnode.shards.shard import SHARD_SAMPLES
from p2pnode.shards.split import split_rows
from p2pnode.tasks.fashion_mnist import CLASSES, FashionMnist

PIXELS = 28 * 28
SAMPLES, TESTS, PROBES = 20_000, 5_000, 200
SAMPLE_BYTES = PIXELS + 1
NOISY = 0.1

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Dealt:
    """All samples, which of them make each shard, and which shards each peer begins with."""

    x: Tensor
    labels: Places  # as the peers know them; some are wrong
    true: Places
    test_x: Tensor
    test_y: Tensor
    shards: list[Places]
    held: list[list[int]]

    @property
    def wrong(self) -> NDArray[np.bool_]:
        return self.labels != self.true

    def counts(self, shards: list[int]) -> NDArray[np.float64]:
        """The number of samples of each label."""
        places = np.concatenate([self.shards[shard] for shard in shards])
        return np.bincount(self.labels[places], minlength=CLASSES).astype(np.float64)

    def own(self, peer: int) -> Places:
        """What a peer began with."""
        return np.concatenate([self.shards[shard] for shard in self.held[peer]])

    def shard_bytes(self, shard: int) -> int:
        return len(self.shards[shard]) * SAMPLE_BYTES


@lru_cache(maxsize=1)
def deal(how: str, noise: str, peers: int, seed: int) -> Dealt:
    """Noise `scattered`: one label in ten is wrong; `flipped`: all labels of one shard in ten are."""
    task = FashionMnist()
    data, tests = task.data(), task.test_data()
    true = data["y"][:SAMPLES].numpy()
    shards, held = _cut(split_rows(true, SAMPLES, peers, parse_split(how), seed), seed)
    return Dealt(
        data["x"][:SAMPLES].reshape(-1, PIXELS).float() / 255,
        _mislabelled(true, shards, noise, seed),
        true,
        tests["x"][:TESTS].reshape(-1, PIXELS).float() / 255,
        tests["y"][:TESTS],
        shards,
        held,
    )


def _cut(parts: list[Places], seed: int) -> tuple[list[Places], list[list[int]]]:
    shards: list[Places] = []
    held: list[list[int]] = []
    for part in parts:
        mixed = np.random.default_rng(seed).permutation(part)
        pieces = np.array_split(mixed, max(1, round(len(part) / SHARD_SAMPLES)))
        held.append(list(range(len(shards), len(shards) + len(pieces))))
        shards += pieces
    return shards, held


def _mislabelled(true: Places, shards: list[Places], noise: str, seed: int) -> Places:
    rng, labels = np.random.default_rng(seed + 1), true.copy()
    wrong = np.zeros(len(true), np.bool_)
    if noise == "scattered":
        wrong = rng.random(len(true)) < NOISY
    elif noise == "flipped":
        for number in rng.choice(len(shards), round(len(shards) * NOISY), replace=False):
            wrong[shards[number]] = True
    labels[wrong] = (labels[wrong] + rng.integers(1, CLASSES, wrong.sum())) % CLASSES
    return labels
