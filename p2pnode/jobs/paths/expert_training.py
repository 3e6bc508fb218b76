"""Trains an expert on a member's own data: the levels of one path, while the ends that paths share stay as they are.

The data are read here and nowhere else. What leaves is signed: the weights, and one row for the router.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from blake3 import blake3

from ...compression.weights import Floats
from ...config.options import TrainOptions
from ...tasks.task import Evaluation
from ...training.host import ModelHost
from ...training.trainer import Trainer
from ...wire.errors import UsageError
from ...wire.ids import Identity
from ..train.binding import follow_plan
from .experts import NAME, ExpertOffer, learn_row, pack_weights, signed, unpack_weights
from .routing import sample_counts
from .setup import PathsSetup

PIECE = 8  # steps that hold the compute thread at a time
OTHERS = 4096  # samples of the usual data from which an expert's data are to be distinguished


@dataclass
class ExpertTraining:
    """An expert under way."""

    name: str
    path: int  # from which it begins
    host: ModelHost
    trainer: Trainer
    weights: Floats
    steps: int  # to do
    done: int = 0
    before: Evaluation | None = None


def check_name(name: str) -> None:
    if not re.match(NAME, name):
        raise UsageError(f"{name[:60]!r} is not the name of an expert: 1 to 32 of a-z, 0-9, - and _")


def open_data(setup: PathsSetup, data: str) -> tuple[ModelHost, int]:
    """Heavy. A model host for data of this node's own, and the path that suits them best; UsageError in one line."""
    if not Path(data).exists():
        raise UsageError(f"--data {data[:200]!r} does not exist; check the path")
    host = follow_plan(setup.plan.train, TrainOptions(data=Path(data), device="cpu"))
    router = setup.plan.router
    counts = sample_counts(host, host.data, router.features, router.prefix)
    path = int(np.exp(router.beginnings(counts)).mean(0).argmax())
    return host, path


def begin_training(name: str, host: ModelHost, path: int, weights: Floats, steps: int, seed: int) -> ExpertTraining:
    """Heavy. Begins at the weights of a path."""
    trainer = Trainer(host, None, seed)
    return ExpertTraining(name, path, host, trainer, weights.copy(), steps, before=trainer.evaluate(weights))


def train_piece(training: ExpertTraining, setup: PathsSetup) -> None:
    """Heavy. Some local steps; after each the ends are what they were. Raises Diverged as training does."""
    ends = setup.parts.ends
    frozen = ends.take(training.weights)
    for _ in range(min(PIECE, training.steps - training.done)):
        result = training.trainer.steps(training.weights, 1)
        ends.put(result.weights, frozen)
        training.weights = result.weights
        training.done += 1


def make_offer(
    training: ExpertTraining, setup: PathsSetup, scope: str, identity: Identity, version: int
) -> tuple[ExpertOffer, Floats, Evaluation]:
    """Heavy. The signed offer of a trained expert, its weights as they travel, and how good they are on its data."""
    router, host = setup.plan.router, training.host
    rng = np.random.default_rng(version)
    own = sample_counts(host, host.data, router.features, router.prefix)
    others = sample_counts(setup.host, setup.host.data.spread(OTHERS), router.features, router.prefix)
    row, scale, constant = learn_row(own, others, rng)
    content = pack_weights(training.weights)
    weights = unpack_weights(content, len(training.weights))
    offer = ExpertOffer(
        scope, training.name, identity.peer_id, version, False, training.path, len(host.data),
        blake3(content).digest(), row, scale, constant,
    )  # fmt: skip
    return signed(offer, identity), weights, training.trainer.evaluate(weights)
