"""A fingerprint describes in 260 bytes what a model has learned. The similarity of two models is a dot product.

Linear CKA (Kornblith and others, 2019) of two models is the cosine of their centred Gram matrices on the same inputs.
So the activations of each layer on the run's probe become a unit vector: the upper triangle of their Gram matrix. A
fixed projection reduces it to 256 numbers of one byte. The part along the main axes of the probe's own inputs is kept
exactly; the rest goes through random signs (Achlioptas, 2003) drawn from the run's seed. The error of a random
projection is proportional to its input, and what all models have in common lies mostly along those axes: keeping them
exact makes the error three times smaller (docs/log.md). Models of different width or kind can be compared if probe and
seed are the same. Rotating or scaling activations changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from ..compression.weights import Doubles

VERSION = 1
DIMENSIONS = 256
HEADER_BYTES = 4  # version, number of layers, two bytes of the projection's hash
FINGERPRINT_BYTES = HEADER_BYTES + DIMENSIONS
INPUTS = (2, 512)  # of a probe: fewest and most
MAX_LAYERS = 4
LARGEST = 127
AXES = 8
ALONG_AXES = AXES * (AXES + 1) // 2
AXIS_ITERATIONS = 4
DEPENDENT = 1e-9  # a column whose remainder is below this share of the longest column is only rounding errors
FLAT = 1e-12  # centred share of the squared activations below which they are rounding errors
_GRID = 2.0**30
_BLOCK = 32  # rows of the projection unpacked at a time

Activations = NDArray[Any]  # a row per probe input

Row = NDArray[np.int8]  # the numbers of one fingerprint
Rows = NDArray[np.int8]


class Projection:
    """The fixed projection of a run: the same for everybody with the same seed and the same probe."""

    def __init__(self, seed: int, probe: NDArray[Any]) -> None:
        """`probe` are the inputs themselves, a row each; ValueError when they are too few, too many or not finite."""
        if probe.ndim < 2 or not INPUTS[0] <= len(probe) <= INPUTS[1]:
            raise ValueError(f"a probe of shape {probe.shape}; {INPUTS[0]} to {INPUTS[1]} rows are possible")
        inputs = np.ascontiguousarray(probe.reshape(len(probe), -1), dtype=np.float64)
        if not np.isfinite(inputs).all():
            raise ValueError("the probe's inputs are not finite numbers")
        self.inputs = len(inputs)
        self._words = f"p2pnode fingerprint {VERSION} {seed} {blake3(inputs.tobytes()).hexdigest()}"
        self._axes = main_axes(inputs, _signs(f"{self._words} axes", AXES, len(inputs)))

    @cached_property
    def mark(self) -> bytes:
        """Two bytes that tell projections apart, so that what cannot be compared is not."""
        return blake3(self._words.encode()).digest(2)

    def fingerprint(self, layers: Sequence[Activations]) -> bytes:
        """The fingerprint of a model by its layers' activations; similarity is then the mean of the layers' CKA.

        ValueError when the activations are not one row per input, not finite, or alike for all inputs.
        """
        if not 1 <= len(layers) <= MAX_LAYERS:
            raise ValueError(f"{len(layers)} layers; 1 to {MAX_LAYERS} are possible")
        along: list[Doubles] = []
        projected = np.zeros(DIMENSIONS - len(layers) * ALONG_AXES)
        left = 0.0
        for number, activations in enumerate(layers):
            if len(activations) != self.inputs:
                raise ValueError(f"activations of {len(activations)} inputs; the probe has {self.inputs}")
            gram = unit_gram(activations)
            seen = self._axes.T @ gram @ self._axes
            rest = upper(gram - self._axes @ seen @ self._axes.T)
            along.append(upper(seen))
            projected += self._project(rest, number, len(projected))
            left += float(rest @ rest)
        length = np.sqrt(projected @ projected)
        if length > 0:
            projected *= np.sqrt(left) / length  # as long as what it stands for
        header = bytes([VERSION, len(layers)]) + self.mark
        return header + _to_bytes(np.concatenate([*along, projected]))

    def _project(self, vector: Doubles, layer: int, dimensions: int) -> Doubles:
        """Sums of whole numbers below 2⁵³: exact in any order, so that machines agree."""
        whole = np.rint(vector * _GRID)
        signs = _signs(f"{self._words} {layer}", dimensions, len(vector))
        sums: Doubles = np.empty(dimensions)
        for start in range(0, dimensions, _BLOCK):
            bits = np.unpackbits(signs[start : start + _BLOCK], axis=1, count=len(vector))
            sums[start : start + _BLOCK] = bits.astype(np.float64) @ whole
        signed: Doubles = 2 * sums - whole.sum()
        return signed


@lru_cache(maxsize=2 * MAX_LAYERS)
def _signs(words: str, count: int, length: int) -> NDArray[np.uint8]:
    """Random bits in `count` rows of `length`, eight to a byte: a set bit is +1, else −1."""
    width = (length + 7) // 8
    return np.frombuffer(blake3(words.encode()).digest(count * width), np.uint8).reshape(count, width)


def main_axes(inputs: Doubles, signs: NDArray[np.uint8]) -> Doubles:
    """Approximates the main axes of the centred inputs' Gram matrix, as orthogonal columns; zeros where it has fewer.

    Subspace iteration from a start everybody has (Halko and others, 2011): unlike eigenvectors its result does not
    jump when two axes are equally strong.
    """
    gram = unit_gram(inputs)
    axes: Doubles = np.unpackbits(signs, axis=1, count=len(inputs)).T.astype(np.float64) * 2 - 1
    for _ in range(AXIS_ITERATIONS):
        axes = _orthogonal(gram @ axes)
    return axes


def _orthogonal(columns: Doubles) -> Doubles:
    """Gram–Schmidt, twice over for rounding; a column with nothing of its own becomes zero."""
    found = np.zeros_like(columns)
    largest = np.sqrt(np.square(columns).sum(axis=0).max())
    for number, column in enumerate(columns.T):
        own = column - found @ (found.T @ column)
        own -= found @ (found.T @ own)
        length = np.sqrt(own @ own)
        if length > DEPENDENT * largest:
            found[:, number] = own / length
    return found


def unit_gram(activations: Activations) -> Doubles:
    """The centred activations' Gram matrix, of norm 1, so that CKA is a dot product; ValueError where there is none."""
    if activations.ndim < 2 or activations.size == 0:
        raise ValueError(f"activations of shape {activations.shape}; one row of numbers per input is needed")
    values = activations.reshape(len(activations), -1).astype(np.float64)
    largest = np.abs(values).max()
    if not np.isfinite(largest):
        raise ValueError("activations on the probe are not finite numbers")
    if largest == 0:
        raise ValueError("activations on the probe are all zero")
    values /= largest
    total = np.square(values).sum()
    values -= values.mean(axis=0)
    if np.square(values).sum() <= FLAT * total:
        raise ValueError("activations are the same for all probe inputs")
    gram: Doubles = values @ values.T
    gram /= np.sqrt(np.square(gram).sum())
    return gram


def upper(gram: Doubles) -> Doubles:
    """The upper triangle as a vector, weighted so that dot products are those of whole matrices."""
    weights = np.full(gram.shape, np.sqrt(2.0))
    np.fill_diagonal(weights, 1.0)
    triangle: Doubles = (gram * weights)[np.triu_indices(len(gram))]
    return triangle


def _to_bytes(projected: Doubles) -> bytes:
    scaled = np.rint(projected * (LARGEST / np.abs(projected).max()))
    return bytes(scaled.astype(np.int8).data)


def read_fingerprint(data: bytes) -> Row:
    """The numbers of a fingerprint a peer sent; ValueError when it is none."""
    if len(data) != FINGERPRINT_BYTES:
        raise ValueError(f"a fingerprint of {len(data)} bytes, {FINGERPRINT_BYTES} expected")
    if data[0] != VERSION:
        raise ValueError(f"a fingerprint of version {data[0]}, {VERSION} expected")
    row = np.frombuffer(data, np.int8, offset=HEADER_BYTES)
    if not row.any():
        raise ValueError("a fingerprint of zeros")
    return row


def comparable(one: bytes, other: bytes) -> bool:
    """Whether two fingerprints come from the same projection and number of layers."""
    return one[:HEADER_BYTES] == other[:HEADER_BYTES]


def similarities(row: Row, rows: Rows) -> Doubles:
    """The similarity of one fingerprint to each of several, 0 to 1. Exact in whole numbers, then rounded once."""
    one, several = row.astype(np.float32), rows.astype(np.float32)  # sums stay below 2²⁴: exact
    dots = (several @ one).astype(np.float64)
    norms = np.einsum("ij,ij->i", several, several).astype(np.float64) * float(one @ one)
    found: Doubles = np.clip(dots / np.sqrt(norms), 0.0, 1.0)
    return found


def similarity(one: Row, other: Row) -> float:
    """CKA of two models by their fingerprints, 0 to 1, up to the projection's error (docs/log.md)."""
    return float(similarities(one, other[None])[0])


def similarity_table(rows: Rows) -> Doubles:
    """Returns the similarity of every two of the fingerprints."""
    several = rows.astype(np.float32)
    dots = (several @ several.T).astype(np.float64)
    squares = np.diagonal(dots)
    found: Doubles = np.clip(dots / np.sqrt(np.outer(squares, squares)), 0.0, 1.0)
    return found
