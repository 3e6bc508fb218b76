"""Which circles are worth going to, and whether it was right to come: nobody is believed what it says of its own.

before   two members or more, a word of this model, and weights that do not much worse on our own samples than ours do
after    who diverges, or does much worse, in its first rounds there leaves again; the circle is left alone for long
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping

import torch

from ..compression.weights import Floats
from ..merging.deltaset.entry import SetRules
from ..merging.deltaset.snapshots import Unsuited
from ..tasks.task import Samples
from ..training.evaluation import spread
from ..training.progress import TrainProgress
from ..training.trainer import Trainer
from ..wire.bounded import keep_newest
from ..wire.ids import PeerId
from ..wire.run import GENESIS
from .advice import FEWEST, REST_ROUNDS, SETTLE_ROUNDS, SPLIT
from .founding import CircleFounding, is_split_off, of_this_model

LEAST_MEMBERS = 2  # one alone can say anything
NEARLY = 2  # by so many members views of one circle differ
MOST_REMEMBERED = 64  # circles
LONG = 10 * REST_ROUNDS  # before a circle is tried again that did harm
WRONG_ROUNDS = 3  # in a row, before a node leaves again
TRIED_BATCHES = 8  # of our own samples, or
TRIED_SAMPLES = 256  # of the test data where this node has none


class CircleTrust:
    """One model's experience with circles."""

    def __init__(self, trainer: Trainer, train_progress: TrainProgress) -> None:
        self._trainer = trainer
        self._train_progress = train_progress
        self._useless: dict[str, int] = {}  # until which round
        self._most_loss: float | None = None  # in the first rounds after we came; None: we did not come from elsewhere
        self._first_rounds = 0  # last until this one
        self._wrong = 0

    # ---- before ----

    def useless(self, circle: str, rounds: int = REST_ROUNDS) -> None:
        """A circle is not tried again for so many rounds."""
        keep_newest(self._useless, circle, self._train_progress.rounds + rounds, MOST_REMEMBERED)

    def enterable(self, circle: str) -> bool:
        """Whether a circle, by its name, can be entered and was not found useless lately."""
        lately = self._train_progress.rounds < self._useless.get(circle, 0)
        return (not circle or is_split_off(circle)) and not lately

    def most_loss(self, theirs: Floats, ours: Floats) -> float:
        """Heavy. What the loss may be in the first rounds elsewhere; Unsuited when `theirs` are worse than that now.

        Twice our own, or half the way back to a model that knows nothing: circles differ, and data too.
        """
        there, here, untrained = (self._loss(weights) for weights in (theirs, ours, self._trainer.model_host.genesis))
        known = here if math.isfinite(here) else untrained
        most = known + max(abs(known), (untrained - known) / 2)
        if not there <= most:
            raise Unsuited(f"on this node's samples its weights have a loss of {there:.3g}, ours {here:.3g}")
        return most

    def _loss(self, weights: Floats) -> float:
        return self._trainer.evaluate(weights, self._samples()).loss

    def _samples(self) -> Samples:
        pool = self._trainer.pool
        places = pool.first(TRIED_BATCHES)
        return pool.batch(torch.cat(places)) if places else spread(self._trainer.model_host.test, TRIED_SAMPLES)

    # ---- after ----

    def came(self, most_loss: float | None) -> None:
        """We are in another circle, where the loss may be that in our first rounds; None: with our own weights."""
        self._most_loss, self._wrong = most_loss, 0
        self._first_rounds = self._train_progress.rounds + SETTLE_ROUNDS

    def regret(self) -> str:
        """After each round, diverged ones too: why it was wrong to come, or ""."""
        now = self._train_progress
        if self._most_loss is None or now.rounds > self._first_rounds:
            return ""
        wrong = now.diverged > 0 or (now.loss is not None and not now.loss <= self._most_loss)
        self._wrong = self._wrong + 1 if wrong else 0
        if self._wrong < WRONG_ROUNDS:
            return ""
        return "training diverges there" if now.diverged else f"the loss rose to {now.loss:.3g} there"


def worth_a_look(circles: Mapping[PeerId, str], mine: str) -> dict[PeerId, str]:
    """Who is where; members of circles too small to be believed are nowhere, as long as there are others."""
    sizes = Counter(name for name in circles.values() if name)
    others = max(sizes.values(), default=0) >= LEAST_MEMBERS or (GENESIS in sizes and mine != GENESIS)
    small = {name for name, size in sizes.items() if size < LEAST_MEMBERS and others} - {mine, GENESIS}
    return {peer: "" if name in small else name for peer, name in circles.items()}


def founded_well(found: CircleFounding, rules: SetRules) -> bool:
    """Whether a circle's word is one that a node of this model may have given."""
    return of_this_model(found, rules) and FEWEST <= len(found.members) <= found.group


def is_fair(found: CircleFounding, mates: Collection[PeerId]) -> bool:
    """Whether a split is one that our circle needs, as far as we see: the half of a large one, by one of us."""
    size = len(mates) + 1
    large = size >= SPLIT - NEARLY and found.founder in mates
    return large and FEWEST <= len(found.members) <= size // 2 + NEARLY and size <= 2 * found.group <= 4 * size
