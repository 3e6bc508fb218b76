"""The order in which a node goes through its samples: pass after pass, each in an order of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..wire.ids import sha256


class Batches:
    """An endless row of batches of `size` out of `samples` (indices into a data set).

    Contract: the n-th batch depends on the samples, the size and the seed only, so `position` is all there is to save.
    What is left of a pass and does not fill a batch is passed over; fewer samples than a batch make one batch.
    """

    def __init__(self, samples: Tensor, size: int, seed: int, position: int = 0) -> None:
        if len(samples) == 0:
            raise ValueError("no samples to make batches of")
        self.samples = samples
        self.size = min(size, len(samples))
        self.position = position  # batches given out so far
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
        """Up to `count` batches of the samples in their own order; the row itself stays where it is."""
        return [self.samples[start : start + self.size] for start in range(0, len(self.samples), self.size)][:count]

    def _permutation(self, number: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed_from(self._seed, "pass", number))
        return torch.randperm(len(self.samples), generator=generator)


def seed_from(*words: object) -> int:
    """A seed made from whatever tells one use of randomness from another; the same everywhere."""
    return int.from_bytes(sha256(repr(words).encode())[:8], "big") >> 1


BALANCED_SHARE = 0.8  # of the draws have every label alike, the others every sample: common labels are looked at too
RECEIVED_TIMES = 3.0  # how much more often a received sample is drawn where there are no labels
LOOK_CHANCE = 0.1  # of a masked sample to be drawn all the same: nothing is learnt from it, but a model may know it

Floats = NDArray[np.float64]
MaybeLabels = NDArray[np.generic] | None


@dataclass(frozen=True)
class Sampling:
    """How likely each sample is drawn, and the weight its loss then gets."""

    probability: Floats  # sums to 1
    weight: Floats


def base_chances(labels: MaybeLabels, received: NDArray[np.bool_]) -> Floats:
    """What the samples are worth before reserve: labels nearly alike, or received samples three times the others."""
    if labels is None:
        chances: Floats = np.where(received, RECEIVED_TIMES, 1.0)
        return chances
    _, which, counts = np.unique(labels, return_inverse=True, return_counts=True)
    balanced: Floats = BALANCED_SHARE / (counts[which] * len(counts)) + (1 - BALANCED_SHARE) / len(which)
    return balanced


def sampling(base: Floats, chances: NDArray[np.floating]) -> Sampling:
    """Draw by `base`, thinned by `chances` (1 active, less in reserve, 0 masked).

    Contract: for any numbers x over the samples, sum(probability·weight·x) is the base's mean of x over those not
    masked; so the expected gradient does not know of the reserve. Masked samples are looked at now and then, at no
    weight, or none could ever come back.
    """
    worth = np.where(chances > 0, base, 0.0)
    thinned = base * np.where(chances > 0, chances, LOOK_CHANCE)
    if worth.sum() <= 0:
        raise ValueError("no samples to draw from: all are masked")
    scale = thinned.sum() / worth.sum()
    weight = np.divide(scale, chances, out=np.zeros_like(worth), where=chances > 0)
    return Sampling(thinned / thinned.sum(), weight)


class DrawnBatches:
    """An endless row of batches drawn by a Sampling, pass after pass, each in an order of its own.

    Contract: as Batches, so `position` is all there is to save; in a pass of as many draws as there are samples each
    one comes as often as its probability says, rounded up or down. Equal probabilities: every sample once.
    """

    def __init__(self, samples: Tensor, how: Sampling, size: int, seed: int, position: int = 0) -> None:
        if len(samples) == 0 or len(samples) != len(how.probability):
            raise ValueError(f"{len(how.probability)} probabilities for {len(samples)} samples")
        self.samples = samples
        self.size = min(size, len(samples))
        self.position = position  # batches given out so far
        self._how = how
        self._weights = torch.from_numpy(how.weight.astype(np.float32))
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
        """Up to `count` batches of the samples in their own order; the row itself stays where it is."""
        return [self.samples[start : start + self.size] for start in range(0, len(self.samples), self.size)][:count]

    def _drawn(self, number: int) -> Tensor:
        """Evenly spaced points from a random start over the samples in a random order, then mixed."""
        generator = torch.Generator().manual_seed(seed_from(self._seed, "pass", number))
        count = len(self.samples)
        order = torch.randperm(count, generator=generator)
        edges = np.cumsum(self._how.probability[order.numpy()])
        start = torch.rand(1, generator=generator, dtype=torch.float64).item()
        points = np.minimum((np.arange(count) + start) / count * edges[-1], np.nextafter(edges[-1], 0.0))
        places = np.searchsorted(edges, points, side="right")
        return order[torch.from_numpy(places)][torch.randperm(count, generator=generator)]
