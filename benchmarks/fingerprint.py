"""How well 260 bytes predict the similarity of two models: fingerprints against exact CKA of real models.

    python -m benchmarks.fingerprint [--json] [--quick] [--models 96] [--seed 1]

Models of three architectures are trained on Fashion-MNIST, each on its own label-skewed share (Dirichlet 0.1, 0.3, 1,
or none) and for its own number of steps, from one genesis per architecture (with --own-genesis from one each). Over
all pairs: cka_error_mean, cka_error_p99 (absolute), rank_correlation (Spearman); within architectures the same, as
…_same_kind. `bytes` is what an announcement carries, `cost_of_round` the processor time of one fingerprint of the
task's own model against a round of two seconds.
"""

from __future__ import annotations

import argparse
import time
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import nn

from benchmarks.common import Figures, middle, need_fashion_mnist, progress, run
from p2pnode.compression.weights import read_weights
from p2pnode.config.split import parse_split
from p2pnode.shards.split import split_rows
from p2pnode.similarity.fingerprint import FINGERPRINT_BYTES, read_fingerprint, similarity_table, unit_gram, upper
from p2pnode.tasks.digits import Scale
from p2pnode.tasks.fashion_mnist import CLASSES, FashionMnist
from p2pnode.training.fingerprinter import Fingerprinter, activations
from p2pnode.training.host import ModelHost, build_model
from p2pnode.training.trainer import Trainer

MODELS = 96
MODELS_QUICK = 60
SPLITS = ("dirichlet:0.1", "dirichlet:0.3", "dirichlet:1", "iid")
PARTS = 8
STEPS = (50, 100, 200, 400)
STEPS_QUICK = (50, 100)
COST_TAKES = 20
ROUND_SECONDS = 2.0  # the default of a plan


class Wide(FashionMnist):
    """One wide hidden layer."""

    def model(self) -> nn.Module:
        return nn.Sequential(Scale(255.0), nn.Linear(28 * 28, 384), nn.Tanh(), nn.Linear(384, CLASSES))


class Convolutions(FashionMnist):
    """Two small convolutions and a hidden layer."""

    def model(self) -> nn.Module:
        return nn.Sequential(
            Scale(255.0), nn.Unflatten(1, (1, 28, 28)),
            nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.Flatten(),
            nn.Linear(400, 64), nn.ReLU(), nn.Linear(64, CLASSES),
        )  # fmt: skip


KINDS: tuple[type[FashionMnist], ...] = (FashionMnist, Wide, Convolutions)


def shares(model_host: ModelHost, seed: int) -> list[NDArray[np.int64]]:
    """Shares of the data with every degree of skew."""
    assert model_host.labels is not None
    return [
        part
        for words in SPLITS
        for part in split_rows(model_host.labels, model_host.samples, PARTS, parse_split(words), seed)
    ]


def trained(
    kind: type[FashionMnist], count: int, steps: tuple[int, ...], seed: int, shared: bool
) -> tuple[list[bytes], list[NDArray[np.float64]]]:
    """Fingerprints and exact Gram vectors of `count` trained models of one kind."""
    model_host = ModelHost(kind(learning_rate=0.05), seed=seed)
    fingerprinter = Fingerprinter(model_host, seed)
    parts = shares(model_host, seed)
    fingerprints, vectors = [], []
    for number in range(count):
        genesis = (
            model_host.genesis
            if shared
            else read_weights(build_model(model_host.task, seed + number), model_host.layout)
        )
        trainer = Trainer(model_host, parts[number % len(parts)], seed=number)
        weights = trainer.steps(genesis, steps[(number // 3) % len(steps)]).weights
        fingerprints.append(fingerprinter.take(trainer, weights, time.perf_counter))
        with trainer.borrowed(weights):
            vectors.append(upper(unit_gram(activations(model_host, model_host.task.probe())[0])))
    return fingerprints, vectors


def cost(seed: int) -> float:
    """Seconds of processor time one fingerprint of the task's own model takes."""
    model_host = ModelHost(FashionMnist(), seed=seed)
    fingerprinter, trainer = Fingerprinter(model_host, seed), Trainer(model_host, seed=seed)
    taken = []
    for _ in range(COST_TAKES):
        begun = time.process_time()
        fingerprinter.take(trainer, model_host.genesis, time.perf_counter)
        taken.append(time.process_time() - begun)
    return middle(taken[1:])


def compared(estimated: NDArray[np.float64], exact: NDArray[np.float64]) -> tuple[float, float, float]:
    errors = np.abs(estimated - exact)
    return float(errors.mean()), float(np.quantile(errors, 0.99)), float(spearmanr(estimated, exact).statistic)


def measure(arguments: argparse.Namespace) -> Figures:
    need_fashion_mnist()
    torch.set_num_threads(1)
    begun = time.perf_counter()
    total = arguments.models or (MODELS_QUICK if arguments.quick else MODELS)
    each, steps = -(-total // len(KINDS)), STEPS_QUICK if arguments.quick else STEPS
    fingerprints: list[bytes] = []
    vectors: list[NDArray[np.float64]] = []
    for kind in KINDS:
        found = trained(kind, each, steps, arguments.seed, not arguments.own_genesis)
        fingerprints += found[0]
        vectors += found[1]
        progress(f"{each} models of kind {kind.__name__}")
    pairs = np.array(list(combinations(range(len(vectors)), 2))).T
    same_kind = pairs[0] // each == pairs[1] // each
    estimated = similarity_table(np.stack([read_fingerprint(data) for data in fingerprints]))[pairs[0], pairs[1]]
    stacked = np.stack(vectors)
    exact = (stacked @ stacked.T)[pairs[0], pairs[1]]
    mean, p99, rank = compared(estimated, exact)
    mean_same, p99_same, rank_same = compared(estimated[same_kind], exact[same_kind])
    seconds = cost(arguments.seed)
    return {
        "models": len(vectors),
        "architectures": len(KINDS),
        "pairs": len(exact),
        "cka_error_mean": mean,
        "cka_error_p99": p99,
        "rank_correlation": rank,
        "cka_error_mean_same_kind": mean_same,
        "cka_error_p99_same_kind": p99_same,
        "rank_correlation_same_kind": rank_same,
        "cka_lowest": float(exact.min()),
        "cka_median": float(np.median(exact)),
        "cka_highest": float(exact.max()),
        "bytes": FINGERPRINT_BYTES,
        "fingerprint_ms": seconds * 1e3,
        "cost_of_round": seconds / ROUND_SECONDS,
        "seconds": time.perf_counter() - begun,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=0, help=f"how many ({MODELS}, with --quick {MODELS_QUICK})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--own-genesis", action="store_true", help="every model from initial weights of its own")
    run("fingerprint", measure, parser)


if __name__ == "__main__":
    main()
