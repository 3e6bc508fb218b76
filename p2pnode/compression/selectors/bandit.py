"""A learned policy for what to send: a bandit over {granularity, k}, rewarded by the loss it takes away per byte.

Discounted UCB (Garivier and Moulines 2011), without randomness. Losses fall fast at first and slowly later, whatever
is sent; so a reward is a rate of decrease relative to the rolling rate of all arms, and old rewards fade.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .granularity import COARSE, FINE, HYBRID

HOLD = 2  # rounds an arm is kept: one round's loss is mostly noise
FADE = 0.99  # of what was learned about the arms, per reward
CURIOSITY = 0.1
_TREND = 0.8  # memory of the rolling rate


@dataclass(frozen=True)
class Arm:
    granularity: int
    share: float  # of the k asked for


ARMS = tuple(Arm(granularity, share) for share in (1.0, 0.5, 2.0) for granularity in (FINE, HYBRID, COARSE))


class Bandit:
    """Which arm to use now, by what came of those used before."""

    def __init__(self) -> None:
        self.arm = ARMS[0]
        self._pulls = np.zeros(len(ARMS))
        self._rewards = np.zeros(len(ARMS))
        self._losses: list[float] = []
        self._bytes = 0
        self._before: tuple[Arm, float, int] | None = None  # the stretch before: arm, mean loss, bytes
        self._trend = 0.0

    def note(self, loss: float, sent_bytes: int) -> None:
        """A round trained at this loss and then sent so much. After HOLD of them the arm before this one is judged.

        What is sent shows in the losses of the rounds after it.
        """
        self._losses.append(loss)
        self._bytes += sent_bytes
        if len(self._losses) < HOLD:
            return
        mean = float(np.mean(self._losses))
        if self._before is not None and self._before[2]:
            arm, loss_before, cost = self._before
            self._reward(arm, max(0.0, loss_before - mean) / cost)
        self._before, self._losses, self._bytes = (self.arm, mean, self._bytes), [], 0
        self.arm = ARMS[self._most_promising()]

    def _reward(self, arm: Arm, rate: float) -> None:
        """`rate`, loss per byte, becomes 0..1: a half is the usual of late."""
        value = rate / (rate + self._trend) if rate else 0.0
        self._trend = _TREND * self._trend + (1 - _TREND) * rate
        self._pulls *= FADE
        self._rewards *= FADE
        number = ARMS.index(arm)
        self._pulls[number] += 1
        self._rewards[number] += value

    def _most_promising(self) -> int:
        tried = np.maximum(self._pulls, 1e-9)
        unsure = CURIOSITY * np.sqrt(np.log(max(np.e, self._pulls.sum())) / tried)
        return int(np.argmax(self._rewards / tried + unsure))
