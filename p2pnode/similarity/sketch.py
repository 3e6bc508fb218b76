"""Short descriptions of vectors, by which two machines see whether theirs are the same up to rounding. Pure.

A hash changes when a device or a library rounds differently. A sketch is the mean, the spread and a few signed sums
(Achlioptas, 2003): a rounding error moves it as little as it moves the vector, and `distance` measures by how much.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from ..compression.weights import Doubles, Floats, WeightLayout
from ..wire.types import Sketch

SUMS = 32  # signed sums of a sketch, at most
MOST_VALUES = 1 << 20  # of a vector that are looked at, evenly spread over it
OFFSET_SHARE = 0.1  # of the mean that counts as spread: numbers that hardly vary are not compared more finely
SMALL = 0.5  # size of test weights that have no inputs: biases, gains


def sketch(vector: NDArray[Any], sums: int = SUMS) -> Sketch:
    """Mean, spread and signed sums of a vector; empty when a number is not finite, or there is none."""
    flat = vector.reshape(-1)
    flat = flat[:: -(-max(1, len(flat)) // MOST_VALUES)].astype(np.float64)
    if not len(flat) or not np.isfinite(flat).all():
        return ()
    mean = float(flat.mean())
    flat -= mean
    signed = np.zeros(-(-len(flat) // sums) * sums)
    signed[: len(flat)] = flat * _signs(len(flat))
    found = signed.reshape(-1, sums).sum(axis=0) / np.sqrt(len(flat) / sums)
    return tuple(float(f"{value:.5g}") for value in (mean, np.sqrt(np.square(flat).mean()), *found))


def distance(one: Sketch, other: Sketch) -> float:
    """Estimates the norm of the difference of two vectors, relative to their spread; infinite for unlike sketches."""
    if len(one) != len(other) or len(one) < 2:
        return np.inf
    first, second = np.array(one), np.array(other)
    scale = np.abs([first[1], second[1], OFFSET_SHARE * first[0], OFFSET_SHARE * second[0]]).max()
    apart = (first - second)[[0, *range(2, len(first))]]
    squared = apart[0] ** 2 + np.square(apart[1:]).mean()
    return float(np.sqrt(squared) / scale) if scale > 0 else float(squared > 0)


def shared_weights(layout: WeightLayout, words: str) -> Floats:
    """Weights that every machine can make, whatever its version of torch: uniform, of variance 1 / inputs."""
    weights = np.empty(layout.size, np.float32)
    for (name, shape), place in zip(layout.parameters, layout.layers().values(), strict=True):
        count = place.stop - place.start
        raw = np.frombuffer(blake3(f"{words} {name}".encode()).digest(2 * count), "<u2")
        size = 1 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else SMALL
        weights[place] = (raw.astype(np.float32) / 32768 - 1) * np.float32(size * np.sqrt(3))
    return weights


def _signs(count: int) -> Doubles:
    bits = np.frombuffer(blake3(b"p2pnode sketch 1").digest(-(-count // 8)), np.uint8)
    signs: Doubles = np.unpackbits(bits, count=count).astype(np.float64) * 2 - 1
    return signs
