"""Decides whether to move to another circle, and whether to leave it again. A circle's claims are not believed.

before   the circle needs two members, a valid founding record, and weights that do not do much worse than ours on this
         node's own samples
after    a node that diverges or does much worse in its first rounds there leaves again, and avoids the circle for long
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Protocol

import torch

from ..compression.weights import Floats
from ..merging.deltaset.entry import SetRules
from ..merging.deltaset.snapshots import Unsuited
from ..tasks.data import Data, Samples
from ..training.progress import TrainProgress
from ..training.trainer import Trainer
from ..wire.bounded import put_bounded
from ..wire.ids import PeerId
from ..wire.run import GENESIS
from .advice import FEWEST, REST_ROUNDS, SETTLE_ROUNDS, SPLIT
from .founding import CircleFounding, is_split_off, of_this_model

LEAST_MEMBERS = 2  # a single member can claim anything
NEARLY = 2  # members by which views of one circle may differ
MOST_REMEMBERED = 64  # circles to avoid
LONG = 10 * REST_ROUNDS  # before a circle that did harm is tried again
WRONG_ROUNDS = 3  # in a row, before a node leaves again
TRIED_BATCHES = 8  # of this node's own samples that foreign weights are tried on, or
TRIED_SAMPLES = 256  # of the test data, if it has none


class CircleJudge(Protocol):
    """Says how good weights are on this node's own samples."""

    is_training_loss: bool  # whether `loss` can be compared with the losses that rounds report

    def loss(self, weights: Floats) -> float | None:
        """Heavy. The loss of weights; None when it cannot be known."""
        ...

    def genesis(self) -> Floats:
        """Heavy. The run's first weights."""
        ...

    def moved(self) -> None:
        """This node goes on with the weights of another circle."""
        ...


class TrainerJudge:
    """The judge of a node that trains on samples of its own."""

    is_training_loss = True

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def loss(self, weights: Floats) -> float:
        return self._trainer.evaluate(weights, self._samples()).loss

    def _samples(self) -> Samples | Data:
        pool = self._trainer.pool
        places = pool.first(TRIED_BATCHES)
        return pool.batch(torch.cat(places)) if places else self._trainer.model_host.test.spread(TRIED_SAMPLES)

    def genesis(self) -> Floats:
        return self._trainer.model_host.genesis

    def moved(self) -> None:
        self._trainer.reset_optimizer()


class CircleTrust:
    """What this node has experienced with circles, for one model."""

    def __init__(self, judge: CircleJudge, train_progress: TrainProgress) -> None:
        self._judge = judge
        self._train_progress = train_progress
        self._avoided: dict[str, int] = {}  # until which round
        self._loss_limit: float | None = None  # in the first rounds after moving; None: this node kept its weights
        self._first_rounds = 0  # they end with this one
        self._wrong = 0  # rounds in a row that went wrong

    # ---- before ----

    def avoid(self, circle: str, rounds: int = REST_ROUNDS) -> None:
        """Do not try a circle again for a number of rounds."""
        put_bounded(self._avoided, circle, self._train_progress.rounds + rounds, MOST_REMEMBERED)

    def enterable(self, circle: str) -> bool:
        """Whether a circle of this name can be entered and is not avoided."""
        avoided = self._train_progress.rounds < self._avoided.get(circle, 0)
        return (not circle or is_split_off(circle)) and not avoided

    def loss_limit(self, theirs: Floats, ours: Floats) -> float:
        """Heavy. The highest acceptable loss in the first rounds elsewhere; Unsuited when `theirs` exceeds it now.

        It is twice our own loss, or half the way back to an untrained model: circles and data differ. There is no limit
        where the judge's losses are none of training.
        """
        there, here = self._judge.loss(theirs), self._judge.loss(ours)
        untrained = None if here is None else self._judge.loss(self._judge.genesis())
        if there is None or here is None or untrained is None:
            return math.inf
        known = here if math.isfinite(here) else untrained
        limit = known + max(abs(known), (untrained - known) / 2)
        if not there <= limit:
            raise Unsuited(f"on this node's samples its weights have a loss of {there:.3g}, ours {here:.3g}")
        return limit if self._judge.is_training_loss else math.inf

    # ---- after ----

    def moved(self, loss_limit: float | None) -> None:
        """This node is in another circle now, with this limit for its first rounds; None if it kept its weights."""
        self._loss_limit, self._wrong = loss_limit, 0
        self._first_rounds = self._train_progress.rounds + SETTLE_ROUNDS

    def regret(self) -> str:
        """Returns why moving here was wrong, or "". Called after each round, also after one that diverged."""
        now = self._train_progress
        if self._loss_limit is None or now.rounds > self._first_rounds:
            return ""
        wrong = now.diverged > 0 or (now.loss is not None and not now.loss <= self._loss_limit)
        self._wrong = self._wrong + 1 if wrong else 0
        if self._wrong < WRONG_ROUNDS:
            return ""
        return "training diverges there" if now.diverged else f"the loss rose to {now.loss:.3g} there"


def without_tiny_circles(circles: Mapping[PeerId, str], mine: str) -> dict[PeerId, str]:
    """Which circle each peer is in; members of circles too small to be believed are in none, if there are others."""
    sizes = Counter(name for name in circles.values() if name)
    others = max(sizes.values(), default=0) >= LEAST_MEMBERS or (GENESIS in sizes and mine != GENESIS)
    small = {name for name, size in sizes.items() if size < LEAST_MEMBERS and others} - {mine, GENESIS}
    return {peer: "" if name in small else name for peer, name in circles.items()}


def is_valid_founding(found: CircleFounding, rules: SetRules) -> bool:
    """Whether a founding record is one that an honest node of this model could have signed."""
    return of_this_model(found, rules) and FEWEST <= len(found.members) <= found.group


def is_fair(found: CircleFounding, mates: Collection[PeerId]) -> bool:
    """Whether this node's circle needs the split, as far as it knows: half of a large circle, by one of its members."""
    size = len(mates) + 1
    large = size >= SPLIT - NEARLY and found.founder in mates
    return large and FEWEST <= len(found.members) <= size // 2 + NEARLY and size <= 2 * found.group <= 4 * size
