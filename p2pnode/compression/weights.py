"""Weights as one vector: where each parameter is in it, and the fixed-point grid on which nodes add.

A node's model becomes a float32 vector (`read_weights`). What nodes share is on a grid of int32 multiples of `UNIT`, so
that sums are exact and equal sets of deltas give bit-equal weights on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod, sqrt
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt
from blake3 import blake3

if TYPE_CHECKING:
    import torch

UNIT = 2.0**-24
MAX_UNITS = 1 << 30  # the largest magnitude of a weight, a level or a residual, in units: 64.0
MAX_SIZE = 1 << 31  # parameters; indices fit 32 bits with room to spare
BLOCK = 1 << 18  # coordinates handled at a time, where a temporary copy of a whole vector would take too much memory

Floats = npt.NDArray[np.float32]  # weights, gradients, scores
Doubles = npt.NDArray[np.float64]
Units = npt.NDArray[np.int32]  # multiples of UNIT


@dataclass(frozen=True)
class WeightLayout:
    """The trainable parameters in order, each as (name, shape). Another layout means another lineage."""

    parameters: tuple[tuple[str, tuple[int, ...]], ...]

    @cached_property
    def size(self) -> int:
        """The number of coordinates."""
        return sum(prod(shape) for _, shape in self.parameters)

    @cached_property
    def hash(self) -> str:
        """Hex blake3 of the canonical description. Manifests contain it."""
        return blake3(msgspec.msgpack.encode(("p2pnode layout 1", self.parameters))).hexdigest()

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        """The number of coordinates of each parameter."""
        return tuple(prod(shape) for _, shape in self.parameters)

    def layers(self) -> dict[str, slice]:
        """Each parameter's slice of the vector."""
        slices, start = {}, 0
        for name, shape in self.parameters:
            slices[name] = slice(start, start + prod(shape))
            start += prod(shape)
        return slices


def layout_of(model: torch.nn.Module) -> WeightLayout:
    """The layout of a model's trainable parameters: tied weights once, without frozen parameters and buffers.

    ValueError when two parameters overlap but differ in size, or when there is nothing to train.
    """
    seen: dict[tuple[str, int], tuple[str, int]] = {}
    found = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad or parameter.numel() == 0:
            continue
        place = (str(parameter.device), parameter.data_ptr())
        first, numel = seen.setdefault(place, (name, parameter.numel()))
        if numel != parameter.numel():
            raise ValueError(f"parameters {first} and {name} share storage but not their size")
        if first == name:
            found.append((name, tuple(parameter.shape)))
    layout = WeightLayout(tuple(found))
    if not 0 < layout.size <= MAX_SIZE:
        raise ValueError(f"a model of {layout.size} trainable parameters; between 1 and {MAX_SIZE} are possible")
    return layout


def read_weights(model: torch.nn.Module, layout: WeightLayout) -> Floats:
    """The model's trainable weights as a fresh float32 vector; ValueError when the model has another layout."""
    vector = np.empty(layout.size, np.float32)
    for parameter, place in _parameters(model, layout):
        vector[place] = parameter.detach().to("cpu").float().reshape(-1).numpy()
    return vector


def write_weights(model: torch.nn.Module, layout: WeightLayout, vector: Floats) -> None:
    """Loads a vector into the model; ValueError when the model has another layout."""
    import torch

    with torch.no_grad():
        for parameter, place in _parameters(model, layout):
            parameter.copy_(torch.from_numpy(vector[place]).view(parameter.shape))


def _parameters(model: torch.nn.Module, layout: WeightLayout) -> Iterator[tuple[torch.nn.Parameter, slice]]:
    named = dict(model.named_parameters())
    for (name, shape), place in zip(layout.parameters, layout.layers().values(), strict=True):
        parameter = named.get(name)
        if parameter is None or tuple(parameter.shape) != shape:
            has = "is missing" if parameter is None else f"has shape {tuple(parameter.shape)}"
            raise ValueError(f"the model does not fit the layout: {name} {has}, {shape} expected")
        yield parameter, place


def blocks(size: int) -> Iterator[slice]:
    """The slices of BLOCK coordinates that make up a vector."""
    return (slice(start, start + BLOCK) for start in range(0, size, BLOCK))


def to_units(values: npt.NDArray[np.floating]) -> Units:
    """The nearest grid points, clipped to ±MAX_UNITS; ValueError when a value is not finite.

    Scaling by a power of two is exact, so values are rounded only once, to the grid.
    """
    if not np.isfinite(values).all():
        raise ValueError(f"{np.count_nonzero(~np.isfinite(values))} of {values.size} values are not finite numbers")
    with np.errstate(over="ignore"):
        scaled = np.multiply(values, values.dtype.type(1 / UNIT))
    np.rint(scaled, out=scaled)
    np.clip(scaled, -MAX_UNITS, MAX_UNITS, out=scaled)
    units: Units = scaled.astype(np.int32)
    return units


def from_units(units: Units) -> Floats:
    """The float32 nearest to each grid value, the same on every machine."""
    values = units.astype(np.float32)
    values *= np.float32(UNIT)
    return values


def dot(one: Floats, other: Floats) -> float:
    """The inner product, made by this thread alone: the threads of BLAS would take time from the training."""
    return float(np.einsum("i,i->", one, other))


def norm(values: Floats) -> float:
    """The Euclidean norm, made by this thread alone."""
    return sqrt(dot(values, values))


_FEW, _SMALL = 1 << 22, 1 << 20  # coordinates, and units of each, whose squares add up to less than 2^63


def norm_squared(units: Units) -> int:
    """The exact sum of squares, in units squared, so that a bound on it decides alike on every machine."""
    magnitudes = np.abs(units.astype(np.int64))
    if len(units) <= _FEW and magnitudes.max(initial=0) < _SMALL:
        return int(magnitudes @ magnitudes)
    high, low = magnitudes >> 16, magnitudes & 0xFFFF
    return (int(high @ high) << 32) + (int(high @ low) << 17) + int(low @ low)
