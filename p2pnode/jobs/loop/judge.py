"""How a loop's node judges the weights of other circles before it goes there: by the user's own evaluation."""

from __future__ import annotations

from collections.abc import Callable

from ...compression.weights import Floats
from ...wire.errors import LocalProblem
from .source import LoopSource


class LoopJudge:
    """Evaluates weights with the user's `evaluate`, if there is one (circles.trust.CircleJudge)."""

    is_training_loss = False  # nobody knows what the user's function returns

    def __init__(self, source: LoopSource, genesis: Callable[[], Floats]) -> None:
        self._source = source
        self.genesis = genesis

    def loss(self, weights: Floats) -> float | None:
        evaluate, replica = self._source.evaluate, self._source.replica
        if evaluate is None or replica is None:
            return None
        try:
            found = replica.evaluate(weights, evaluate)
        except LocalProblem:
            return None  # evaluating the shared model reports it
        return found.loss if found.accuracy is None else 1.0 - found.accuracy

    def moved(self) -> None:
        """The user's optimizer keeps its state."""


class NoFingerprint:
    """A newcomer's loop cannot be trained alone for a while: it enters the circle with the fewest members."""

    async def fingerprint(self) -> bytes:
        return b""
