"""Routes a task's data: counts of its samples and documents, the path of each, and what to show of that. Heavy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ...compression.weights import Floats
from ...tasks.data import Data
from ...tasks.errors import task_errors
from ...tasks.task import Samples
from ...training.host import ModelHost
from ...wire.errors import LocalProblem, UsageError
from .grid import PathGrid
from .plan import PathsOptions
from .router import PathRouter, Paths, RoutedData, feature_count, make_router, summed

PIECE = 4096  # samples at a time
EXAMPLE_CHARACTERS = 60
ROUTER_COLUMNS = (("path", ""), ("documents", ""), ("samples", ""), ("right by beginning", "share"), ("example", ""))


@dataclass(frozen=True)
class RoutedSamples:
    """The path of each sample, by its whole document, and the log probability of each path by its beginning only."""

    paths: Paths
    beginnings: Floats  # (samples, paths)

    @property
    def by_beginning(self) -> Paths:
        """The likeliest path of each sample, by its beginning."""
        found: Paths = self.beginnings.argmax(1)
        return found


def sample_counts(host: ModelHost, data: Data, size: int, prefix: int | None) -> Floats:
    """What the router sees of each sample; LocalProblem when some of the data cannot be read."""
    found = [_features(host, piece, size, prefix) for piece in data.pieces(PIECE)]
    counts: Floats = np.concatenate(found) if found else np.empty((0, size), np.float32)
    if len(counts) != len(data):
        raise LocalProblem(f"{len(data) - len(counts)} samples cannot be read, so they cannot be routed")
    return counts


def _features(host: ModelHost, samples: Samples, size: int, prefix: int | None) -> Floats:
    with task_errors(host.task, "features"):
        found = host.task.features(samples, size, prefix)
    if found is None:
        found = _hidden_features(host, samples, size)
    return found.numpy().astype(np.float32)


def _hidden_features(host: ModelHost, samples: Samples, size: int) -> torch.Tensor:
    """The hidden states of the untrained model: a fixed random look at the inputs, the same at every member."""
    blocks = host.task.blocks(host.model)
    assert blocks is not None
    with host.lock, torch.no_grad():
        host.put(host.genesis)
        host.model.eval()
        hidden = torch.cat(
            [
                blocks.hidden({name: column[start : start + PIECE] for name, column in samples.items()}).flatten(1)
                for start in range(0, len(next(iter(samples.values()))), PIECE)
            ]
        ).float()
    spread = torch.nn.functional.adaptive_avg_pool1d(hidden[:, None], min(size, hidden.shape[1]))[:, 0]
    low = torch.nn.functional.relu(torch.cat([spread, -spread], 1))[:, :size].cpu()
    return torch.nn.functional.pad(low, (0, size - low.shape[1]))


def document_numbers(host: ModelHost) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The document of each sample, of the data and of the test data, counted from 0."""
    found = host.task.documents()
    if found is None:
        return np.arange(len(host.data)), np.arange(len(host.test))
    train, test = (np.unique(one, return_inverse=True)[1].astype(np.int64) for one in found)
    if len(train) != len(host.data) or len(test) != len(host.test):
        raise LocalProblem(f"task {host.task.name}: documents() must name a document for each sample")
    return train, test


def found_router(host: ModelHost, options: PathsOptions, seed: int) -> tuple[PathRouter, Paths]:
    """The router of a founder's data, and the path of each of its samples; UsageError when there are too few."""
    if host.data.is_stream:
        raise UsageError("paths need data that can be routed before training; a stream cannot be")
    grid = options.grid
    size, (documents, _) = feature_count(grid.paths), document_numbers(host)
    counts = sample_counts(host, host.data, size, None)
    per_document = summed(counts, documents, int(documents.max(initial=-1)) + 1)
    beginnings = sample_counts(host, host.data, size, options.prefix)
    labels = _document_labels(host, documents) if options.route == "labels" else None
    data = RoutedData(per_document, documents, beginnings)
    router = make_router(data, grid, options.prefix, seed, labels)
    return router, router.documents(per_document)[documents]


def _document_labels(host: ModelHost, documents: NDArray[np.int64]) -> NDArray[np.int64]:
    """The most frequent label in each document."""
    if host.labels is None:
        raise UsageError(f"route=labels: the samples of task {host.task.name} have no labels; use route=documents")
    classes, inverse = np.unique(host.labels, return_inverse=True)
    votes = np.zeros((int(documents.max()) + 1, len(classes)), np.int64)
    np.add.at(votes, (documents, inverse), 1)
    found: NDArray[np.int64] = classes[votes.argmax(1)]
    return found


def route_samples(host: ModelHost, router: PathRouter, data: Data, documents: NDArray[np.int64]) -> RoutedSamples:
    """The paths of a task's samples, whoever made the router."""
    counts = sample_counts(host, data, router.features, None)
    per_document = summed(counts, documents, int(documents.max(initial=-1)) + 1)
    beginnings = router.beginnings(sample_counts(host, data, router.features, router.prefix))
    return RoutedSamples(router.documents(per_document)[documents], beginnings)


def router_rows(host: ModelHost, grid: PathGrid, routed: RoutedSamples) -> list[tuple[str, int, int, float, str]]:
    """What each path got: its name, documents, samples, share found again by beginnings, and a typical sample."""
    documents, _ = document_numbers(host)
    rows = []
    for path in range(grid.paths):
        own = np.flatnonzero(routed.paths == path)
        right = float((routed.by_beginning[own] == path).mean()) if len(own) else 0.0
        typical = int(own[routed.beginnings[own, path].argmax()]) if len(own) else -1
        sample = {} if typical < 0 else host.data.rows(torch.tensor([typical]))
        text = host.task.preview(sample)[:EXAMPLE_CHARACTERS] if sample else ""
        rows.append((grid.name(path), len(np.unique(documents[own])), len(own), right, text))
    return rows
