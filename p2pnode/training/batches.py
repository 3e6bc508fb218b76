"""The order in which a node trains on its samples: pass after pass, each pass in another order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compression.weights import Doubles
from ..wire.ids import sha256


class Batches:
    """An endless sequence of batches of `size` out of `samples` (indices into a data set).

    The n-th batch depends only on the samples, the size and the seed, so `position` is all that must be saved. The end
    of a pass that does not fill a batch is skipped; fewer samples than a batch make one batch.
    """

    def __init__(self, samples: Tensor, size: int, seed: int, position: int = 0) -> None:
        if len(samples) == 0:
            raise ValueError("no samples to make batches of")
        self.samples = samples
        self.size = min(size, len(samples))
        self.position = position  # batches returned so far
        self._seed = seed
        self._pass = -1
        self._order = samples

    def next(self) -> Tensor:
        """The indices of the next batch."""
        number, place = divmod(self.position, len(self.samples) // self.size)
        if number != self._pass:
            self._order, self._pass = self.samples[self._permutation(number)], number
        self.position += 1
        return self._order[place * self.size : (place + 1) * self.size]

    def first(self, count: int) -> list[Tensor]:
        """Up to `count` batches of the samples in their own order. `position` does not change."""
        return [self.samples[start : start + self.size] for start in range(0, len(self.samples), self.size)][:count]

    def _permutation(self, number: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed_from(self._seed, "pass", number))
        return torch.randperm(len(self.samples), generator=generator)


def seed_from(*words: object) -> int:
    """A seed from whatever distinguishes one use of randomness from another; the same on every machine."""
    return int.from_bytes(sha256(repr(words).encode())[:8], "big") >> 1


BALANCED_SHARE = 0.8  # of the draws treat all labels alike; the others treat all samples alike, so none is neglected
RECEIVED_TIMES = 3.0  # how much more often a received sample is drawn where there are no labels
LOOK_CHANCE = 0.1  # a masked sample is drawn this often, with weight 0, to see whether a model knows it by now

MaybeLabels = NDArray[np.generic] | None


@dataclass(frozen=True)
class Sampling:
    """The probability of drawing each sample, and the weight that its loss then gets."""

    probability: Doubles  # sums to 1
    weight: Doubles


def base_chances(labels: MaybeLabels, received: NDArray[np.bool_]) -> Doubles:
    """The chances before the samples' state counts: labels nearly alike, or received samples three times as often."""
    if labels is None:
        chances: Doubles = np.where(received, RECEIVED_TIMES, 1.0)
        return chances
    _, which, counts = np.unique(labels, return_inverse=True, return_counts=True)
    balanced: Doubles = BALANCED_SHARE / (counts[which] * len(counts)) + (1 - BALANCED_SHARE) / len(which)
    return balanced


def sampling(base: Doubles, chances: NDArray[np.floating]) -> Sampling:
    """Sampling by `base`, reduced by `chances` (1 active, less in reserve, 0 masked).

    For any numbers x over the samples, sum(probability·weight·x) is the base's mean of x over those not masked; so the
    expected gradient does not depend on the reserve. Masked samples are drawn now and then with weight 0, because
    otherwise none could ever come back.
    """
    worth = np.where(chances > 0, base, 0.0)
    thinned = base * np.where(chances > 0, chances, LOOK_CHANCE)
    if worth.sum() <= 0:
        raise ValueError("no samples to draw from: all are masked")
    scale = thinned.sum() / worth.sum()
    weight = np.divide(scale, chances, out=np.zeros_like(worth), where=chances > 0)
    return Sampling(thinned / thinned.sum(), weight)


class DrawnBatches:
    """An endless sequence of batches drawn by a Sampling, pass after pass, each pass in another order.

    As with Batches, `position` is all that must be saved. A pass has as many draws as there are samples; each sample
    comes as often as its probability says, rounded up or down. With equal probabilities every sample comes once.
    """

    def __init__(self, samples: Tensor, sampling: Sampling, size: int, seed: int, position: int = 0) -> None:
        if len(samples) == 0 or len(samples) != len(sampling.probability):
            raise ValueError(f"{len(sampling.probability)} probabilities for {len(samples)} samples")
        self.samples = samples
        self.size = min(size, len(samples))
        self.position = position  # batches returned so far
        self._sampling = sampling
        self._weights = torch.from_numpy(sampling.weight.astype(np.float32))
        self._seed = seed
        self._pass = -1
        self._places = torch.empty(0, dtype=torch.int64)

    def next(self) -> tuple[Tensor, Tensor]:
        """The indices of the next batch, and the weights of their losses."""
        number, place = divmod(self.position, len(self.samples) // self.size)
        if number != self._pass:
            self._places, self._pass = self._drawn(number), number
        self.position += 1
        places = self._places[place * self.size : (place + 1) * self.size]
        return self.samples[places], self._weights[places]

    def first(self, count: int) -> list[Tensor]:
        """Up to `count` batches of the samples in their own order. `position` does not change."""
        return [self.samples[start : start + self.size] for start in range(0, len(self.samples), self.size)][:count]

    def _drawn(self, number: int) -> Tensor:
        """Evenly spaced points from a random start over the samples in random order, then shuffled."""
        generator = torch.Generator().manual_seed(seed_from(self._seed, "pass", number))
        count = len(self.samples)
        order = torch.randperm(count, generator=generator)
        edges = np.cumsum(self._sampling.probability[order.numpy()])
        start = torch.rand(1, generator=generator, dtype=torch.float64).item()
        points = np.minimum((np.arange(count) + start) / count * edges[-1], np.nextafter(edges[-1], 0.0))
        places = np.searchsorted(edges, points, side="right")
        return order[torch.from_numpy(places)][torch.randperm(count, generator=generator)]
