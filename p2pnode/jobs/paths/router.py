"""The router: which documents belong to which path, and which path suits a beginning. Pure.

It is made once, by the founder, before anything is trained: features of documents → clusters of equal size → paths. A
second classifier looks at the beginning of a sequence only, for texts whose rest is not known yet. Both are linear and
in the signed manifest, so every member routes alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from ...compression.weights import Floats
from ...wire.errors import UsageError
from .grid import MAX_PATHS, PathGrid

MAX_ROUTER_BYTES = 32_768
FEATURES = (1024, 512, 256, 128)  # the first that fits the bound
ROOM = 30_000  # bytes for both classifiers; the rest is for their scales
FITTED = 4096  # documents that clusters are found among
LEARNED = 8192  # beginnings that the second classifier is trained on
TOO_FEW = 8  # documents of a path
_ITERATIONS, _PRICE_STEPS = 15, 60
_BATCH, _STEPS, _RATE, _SHARPNESS, _DECAY = 1024, 400, 0.05, 8.0, 1e-4

Paths = NDArray[np.int64]  # the path of each document or sample
Weights = Annotated[bytes, msgspec.Meta(max_length=MAX_ROUTER_BYTES)]
PerPath = Annotated[tuple[float, ...], msgspec.Meta(min_length=2, max_length=MAX_PATHS)]


class Classifier(msgspec.Struct, frozen=True, array_like=True):
    """A linear classifier: for each path a row of small whole numbers, the size of one, and a constant."""

    weights: Weights
    scales: PerPath
    constants: PerPath


class PathRouter(msgspec.Struct, frozen=True):
    """Both classifiers over the same features."""

    features: Annotated[int, msgspec.Meta(ge=1, le=FEATURES[0])]
    whole: Classifier  # for whole documents
    beginning: Classifier  # for the first `prefix` pieces of a sequence
    prefix: Annotated[int, msgspec.Meta(ge=0, le=4096)]  # 0: samples are routed by all of their input

    def __post_init__(self) -> None:
        paths = len(self.whole.scales)
        for one in (self.whole, self.beginning):
            if len(one.weights) != paths * self.features or {len(one.scales), len(one.constants)} != {paths}:
                raise ValueError("the router's classifiers do not fit together")
            if not np.isfinite([*one.scales, *one.constants]).all():
                raise ValueError("the router has numbers that are not finite")

    @property
    def size(self) -> int:
        """Bytes that it takes in the manifest."""
        return len(msgspec.msgpack.encode(self))

    def documents(self, counts: Floats) -> Paths:
        """The path of each document, from its counts."""
        found: Paths = _scores(self.whole, normalised(counts)).argmax(1)
        return found

    def beginnings(self, counts: Floats) -> Floats:
        """The logarithm of each path's probability (samples, paths), from counts of beginnings."""
        scores = _scores(self.beginning, normalised(counts))
        scores -= scores.max(1, keepdims=True)
        found: Floats = (scores - np.log(np.exp(scores).sum(1, keepdims=True))).astype(np.float32)
        return found


def _scores(classifier: Classifier, features: Floats) -> Floats:
    paths = len(classifier.scales)
    rows = np.frombuffer(classifier.weights, np.int8).reshape(paths, -1).astype(np.float32)
    scales, constants = np.array(classifier.scales, np.float32), np.array(classifier.constants, np.float32)
    found: Floats = features @ (rows * scales[:, None]).T + constants
    return found


def normalised(counts: Floats) -> Floats:
    """Square roots of counts with norm 1, so that long and short documents are alike."""
    roots = np.sqrt(np.maximum(counts, 0.0)).astype(np.float32)
    found: Floats = roots / np.maximum(np.linalg.norm(roots, axis=1, keepdims=True), 1e-12)
    return found


def feature_count(paths: int) -> int:
    """How many features a router over so many paths can have within its bound."""
    return next((size for size in FEATURES if 2 * paths * size <= ROOM), FEATURES[-1])


def check_size(router: PathRouter) -> PathRouter:
    """The router; UsageError when it takes more than its part of the manifest."""
    if router.size > MAX_ROUTER_BYTES:
        raise UsageError(f"the router takes {router.size:,} bytes; at most {MAX_ROUTER_BYTES:,} fit into the manifest")
    return router


@dataclass(frozen=True)
class RoutedData:
    """What a founder's data are to a router."""

    documents: Floats  # counts of each document
    document_of: NDArray[np.int64]  # the document of each sample
    beginnings: Floats  # counts of the beginning of each sample

    @cached_property
    def samples(self) -> NDArray[np.int64]:
        """How many samples each document has."""
        return np.bincount(self.document_of, minlength=len(self.documents))


def make_router(data: RoutedData, grid: PathGrid, prefix: int, seed: int, given: Paths | None = None) -> PathRouter:
    """The router of a founder's data. With `given`, the class of each document, classes stay together.

    UsageError when there are too few documents.
    """
    count, paths = len(data.documents), grid.paths
    if count < TOO_FEW * paths:
        raise UsageError(
            f"{paths} paths need {TOO_FEW * paths} documents or more, and the data have {count}; "
            "add texts, or choose fewer paths"
        )
    rng, features = np.random.default_rng(seed), normalised(data.documents)
    if given is None:
        centres, prices = balanced_clusters(features, data.samples, paths, rng)
    else:
        centres, prices = _grouped(features, data.samples, given, paths)
    order = arranged(centres, grid)
    centres, prices = centres[order], prices[order]
    whole = _packed(2 * centres, -(centres**2).sum(1) - prices)
    routed = (_scores(whole, features).argmax(1))[data.document_of]
    beginning = _learned(normalised(data.beginnings), routed, paths, rng)
    return check_size(PathRouter(features.shape[1], whole, beginning, prefix))


def balanced_clusters(
    features: Floats, sizes: NDArray[np.int64], count: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Centres of clusters with about equally many samples, and the price of each, which makes them equal.

    A document belongs to the cluster of the smallest distance plus price.
    """
    if len(features) > FITTED:
        chosen = rng.choice(len(features), FITTED, replace=False)
        features, sizes = features[chosen], sizes[chosen]
    centres = _spread_centres(features, count, rng)
    prices = np.zeros(count, np.float32)
    for _ in range(_ITERATIONS):
        distances = _distances(features, centres)
        prices = _fair_prices(distances, sizes, prices)
        nearest = (distances + prices).argmin(1)
        for cluster in range(count):
            inside = nearest == cluster
            if inside.any():
                centres[cluster] = np.average(features[inside], axis=0, weights=sizes[inside])
    return centres, _fair_prices(_distances(features, centres), sizes, prices)


def _spread_centres(features: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Documents far from each other (k-means++)."""
    centres = [features[rng.integers(len(features))]]
    for _ in range(count - 1):
        nearest = _distances(features, np.array(centres)).min(1).astype(np.float64) + 1e-12
        centres.append(features[rng.choice(len(features), p=nearest / nearest.sum())])
    return np.array(centres)


def _distances(features: Floats, centres: Floats) -> Floats:
    squares: Floats = (features**2).sum(1)[:, None] - 2 * features @ centres.T + (centres**2).sum(1)
    return np.maximum(squares, 0.0)


def _fair_prices(distances: Floats, sizes: NDArray[np.int64], prices: Floats) -> Floats:
    """Prices under which clusters get about equal shares of the samples; large clusters become expensive."""
    count, total = distances.shape[1], sizes.sum()
    best, least, step = prices.copy(), np.inf, 0.5 * float(distances.std()) + 1e-9
    for number in range(_PRICE_STEPS):
        shares = np.bincount((distances + prices).argmin(1), weights=sizes, minlength=count) / total
        off = float(np.abs(shares - 1 / count).max())
        if off < least:
            best, least = prices.copy(), off
        prices = prices + step * (1 - number / _PRICE_STEPS) * (shares - 1 / count).astype(np.float32)
    return best


def _grouped(features: Floats, sizes: NDArray[np.int64], given: Paths, count: int) -> tuple[Floats, Floats]:
    """Centres of groups of whole classes: the largest class goes to the path with the fewest samples so far."""
    classes, inverse = np.unique(given, return_inverse=True)
    if len(classes) < count:
        raise UsageError(f"{count} paths by label need as many labels, and the data have {len(classes)}")
    weight, group, filled = np.bincount(inverse, weights=sizes), np.zeros(len(classes), np.int64), np.zeros(count)
    for label in np.argsort(-weight):
        group[label] = int(filled.argmin())
        filled[group[label]] += weight[label]
    own = group[inverse]
    centres = np.array([np.average(features[own == one], axis=0, weights=sizes[own == one]) for one in range(count)])
    return centres.astype(np.float32), np.zeros(count, np.float32)


def arranged(centres: Floats, grid: PathGrid) -> list[int]:
    """The order of clusters as paths in which those most alike share their option at the first levels."""

    def halves(members: list[int], level: int) -> list[int]:
        if level == grid.levels:
            return members
        groups = _alike(centres, members, grid.options)
        return [one for group in groups for one in halves(group, level + 1)]

    return halves(list(range(len(centres))), 0)


def _alike(centres: Floats, members: list[int], count: int) -> list[list[int]]:
    """Groups of equal size of members that are alike: beginning with the two farthest, each takes its nearest."""
    room, left, groups = len(members) // count, list(members), []
    apart = _distances(centres, centres)
    for _ in range(count):
        first = max(left, key=lambda one: (sum(apart[one, other] for other in left), -one))
        group = sorted(left, key=lambda one: (apart[first, one] if one != first else -1.0, one))[:room]
        groups.append(group)
        left = [one for one in left if one not in group]
    return groups


def _packed(weights: Floats, constants: Floats) -> Classifier:
    """A classifier in one byte for each weight."""
    scales = np.maximum(np.abs(weights).max(1), 1e-12) / 127
    small = np.rint(weights / scales[:, None]).astype(np.int8)
    return Classifier(small.tobytes(), tuple(map(float, scales)), tuple(map(float, constants)))


def _learned(features: Floats, paths: Paths, count: int, rng: np.random.Generator) -> Classifier:
    """Logistic regression with Adam from the beginnings of samples to their paths."""
    if len(features) > LEARNED:
        chosen = rng.choice(len(features), LEARNED, replace=False)
        features, paths = features[chosen], paths[chosen]
    weights = np.zeros((features.shape[1] + 1, count), np.float32)  # the last row is the constant
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, _STEPS + 1):
        rows = rng.integers(0, len(features), min(_BATCH, len(features)))
        inputs = np.concatenate([_SHARPNESS * features[rows], np.ones((len(rows), 1), np.float32)], axis=1)
        scores = inputs @ weights
        scores -= scores.max(1, keepdims=True)
        guess = np.exp(scores)
        guess /= guess.sum(1, keepdims=True)
        guess[np.arange(len(rows)), paths[rows]] -= 1.0
        gradient = inputs.T @ guess / len(rows) + _DECAY * weights
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        weights -= _RATE * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return _packed((_SHARPNESS * weights[:-1].T).astype(np.float32), weights[-1])


def summed(counts: Floats, document_of: NDArray[np.int64], documents: int) -> Floats:
    """The counts of documents, from those of their samples."""
    found = np.zeros((documents, counts.shape[1]), np.float32)
    np.add.at(found, document_of, counts)
    return found


def shares(paths: Sequence[int] | Paths, count: int) -> list[float]:
    """The share of samples on each path."""
    found = np.bincount(np.asarray(paths, np.int64), minlength=count)
    return [float(one) for one in found / max(1, found.sum())]
