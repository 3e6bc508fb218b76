"""Which granularity a round's delta has, and how many coordinates that buys for the bytes of k single ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ..delta import Indices
from ..weights import Units
from .bandit import Bandit
from .granularity import (
    COARSE,
    COARSE_BLOCK,
    FINE,
    HYBRID,
    HYBRID_BLOCKS,
    LEARNED,
    RULE,
    Blocks,
    GranularityChoice,
    Score,
    best,
    coarse,
    fine,
    granularity_for,
    hybrid,
)

PRICE_EVERY = 8  # rounds after which one goes out fine, to know what single coordinates cost by now
MOST = 6.0  # times the coordinates of fine
_MEMORY = 0.8  # of rolling averages, per round


class Granulator:
    """A fixed granularity, the rule, or the bandit; all at the bytes of fine, the bandit at its arm's share of them."""

    def __init__(self, setting: int, layers: Sequence[int]) -> None:
        self.scarcity = 0.0  # 0: the link has room; 1: it is full. For the rule.
        self.granularity = FINE  # of the last round
        self.choice = GranularityChoice(COARSE, COARSE, "the beginning")
        self.bandit = Bandit() if setting == LEARNED else None
        self._setting = setting
        self._layers = tuple(layers)
        self._fine_bits = 0.0  # a single coordinate took when last one went out; 0 before the first
        self._more = {COARSE: 2.0, HYBRID: 1.0}  # times k, so that the bytes are those of k single ones
        self._k = 0
        self._rounds = 0
        self._first_loss = self._loss = self._smooth = 0.0

    def places(self, residual: Units, k: int, most: int, bits: int, loss: float, score: Score) -> Indices:
        """Heavy. The coordinates of this round's delta, at most `most`."""
        self._follow(loss)
        self.granularity = self._next()
        self._rounds += 1
        self._k = min(most, k if self.bandit is None else max(1, round(k * self.bandit.arm.share)))
        if self.granularity == FINE:
            return fine(residual, self._k, score)
        budget = min(most, max(1, round(self._k * self._more[self.granularity])))
        if self.granularity == COARSE:
            return coarse(residual, budget, score, self._coarse)
        chosen = hybrid(residual, budget, score, self._hybrid, bits, self._fine_bits)
        return chosen if len(chosen) <= most else best(chosen, score(chosen), most)

    def sent(self, entries: int, payload_bytes: int) -> None:
        """How the delta of these places turned out."""
        bits = 8.0 * payload_bytes
        if entries and self.granularity == FINE:
            self._fine_bits = bits / entries
        elif entries:
            more = self._more[self.granularity] * (self._k * self._fine_bits / bits) ** 0.5
            self._more[self.granularity] = min(MOST, max(1 / MOST, more))
        if self.bandit is not None:
            self.bandit.note(self._loss, payload_bytes)

    @cached_property
    def _coarse(self) -> Blocks:
        return Blocks(self._layers, COARSE_BLOCK)

    @cached_property
    def _hybrid(self) -> list[Blocks]:
        return [Blocks(self._layers, length) for length in HYBRID_BLOCKS]

    def _next(self) -> int:
        if not self._fine_bits or (self._setting != FINE and self._rounds % PRICE_EVERY == 0):
            return FINE
        if self.bandit is not None:
            return self.bandit.arm.granularity
        return self.choice.granularity if self._setting == RULE else self._setting

    def _follow(self, loss: float) -> None:
        """Confidence is the share of the first loss that is gone."""
        self._loss = loss
        self._first_loss = self._first_loss or loss
        self._smooth = _MEMORY * self._smooth + (1 - _MEMORY) * loss if self._smooth else loss
        confidence = 1.0 - self._smooth / self._first_loss if self._first_loss else 0.0
        self.choice = granularity_for(confidence, self.scarcity, self.choice.level)
