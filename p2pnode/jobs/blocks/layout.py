"""Cuts a model's vector of weights into its ends and levels of consecutive layers. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod

import numpy as np

from ...compression.weights import Floats, WeightLayout
from ...wire.errors import UsageError


@dataclass(frozen=True)
class ModelPart:
    """Some parameters of a model: where they are in its vector, and what they are, in the same order."""

    places: tuple[slice, ...]
    layout: WeightLayout

    @property
    def size(self) -> int:
        return self.layout.size

    @cached_property
    def _offsets(self) -> list[int]:
        return list(accumulate((place.stop - place.start for place in self.places), initial=0))

    def take(self, vector: Floats) -> Floats:
        """The part's values as a vector of their own. A fresh array."""
        return np.concatenate([vector[place] for place in self.places])

    def put(self, vector: Floats, values: Floats) -> None:
        """Write the part's values into the model's vector."""
        for place, start in zip(self.places, self._offsets, strict=False):
            vector[place] = values[start : start + place.stop - place.start]


@dataclass(frozen=True)
class ModelParts:
    """A model in parts, which together have each of its parameters once."""

    ends: ModelPart
    levels: tuple[ModelPart, ...]

    @property
    def all(self) -> tuple[ModelPart, ...]:
        return (self.ends, *self.levels)


def cut_model(layout: WeightLayout, layers: Sequence[Collection[str]], levels: int) -> ModelParts:
    """The ends and `levels` levels of a model whose layers have parameters of these names.

    UsageError when the layers cannot be divided into levels of equal length.
    """
    if not layers or len(layers) % levels:
        raise UsageError(
            f"a model of {len(layers)} layers cannot be cut into {levels} levels; "
            f"the number of layers must be a multiple of {levels}"
        )
    each = len(layers) // levels
    level_of = {name: number // each for number, names in enumerate(layers) for name in names}
    places: list[list[slice]] = [[] for _ in range(levels + 1)]
    shapes: list[list[tuple[str, tuple[int, ...]]]] = [[] for _ in range(levels + 1)]
    start = 0
    for name, shape in layout.parameters:
        part, stop = level_of.get(name, levels), start + prod(shape)
        if places[part] and places[part][-1].stop == start:
            places[part][-1] = slice(places[part][-1].start, stop)
        else:
            places[part].append(slice(start, stop))
        shapes[part].append((name, shape))
        start = stop
    if not all(places):
        raise UsageError("a level or the ends of the model have no parameters to share; choose other levels")
    made = [ModelPart(tuple(place), WeightLayout(tuple(own))) for place, own in zip(places, shapes, strict=True)]
    return ModelParts(made[-1], tuple(made[:-1]))
