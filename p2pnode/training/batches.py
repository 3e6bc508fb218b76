"""The order in which a node goes through its samples: pass after pass, each in an order of its own."""

from __future__ import annotations

import torch
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
