"""How much of its own unsent progress a node keeps in the weights it trains: κ in x₀ = A + κ·e. Pure.

A round's progress that was not sent lives in the residual e. A node that starts at A has to learn it once more. AdamW
changes all coordinates about equally, so an entry carries a small part of a round and the loss is large (text, 500
steps: 0.14 nats). But e also bends the weights towards the node's own data: where members have different data, keeping
it does harm (digits with skewed labels: 1.6 points at κ = 0.5).

Others' entries tell which of both it is. Let v be what another author took out of its residual for an entry, and e our
own residual. If e points where v does, others are about to learn the same. So

    ρ_t = Σ⟨e, v⟩ / Σ⟨v, v⟩ over the entries that came since our last one      ρ = its running mean
    κ   = 4ρ, between 0 and ½, while members agree: in the first rounds, and from when ρ was above ¼ after them

Agreement once seen stays: ρ falls by itself later, when less is left to learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...compression.weights import Floats, dot
from ...storage.checkpoints import Arrays

MOST = 0.5  # κ
GAIN = 4.0  # of κ over ρ
AGREED = 0.25  # ρ above which members agree
FIRST = 4  # measurements that κ follows in any case
_SLOWEST = 0.1  # weight of a measurement in the running mean
_LIGHTEST = 1e-3  # of an entry; one that claims a smaller weight must not decide everything


class Retention:
    """One author's κ. `heard` notes entries of others; `measure` compares them with the residual before it is sent.

    Everything is measured on a sample of `size` coordinates, always the same ones.
    """

    def __init__(self, size: int) -> None:
        self.kappa = 0.0
        self._agreement = 0.0  # ρ
        self._measured = 0
        self._peak = 0.0  # of ρ, after the first measurements
        self._others = np.zeros(size, np.float32)  # Σ v
        self._squares = 0.0  # Σ ⟨v, v⟩

    @property
    def agreed(self) -> bool:
        """Whether members learn the same, as far as is known."""
        return self._measured < FIRST or self._peak > AGREED

    def heard(self, values: Floats, weight: float) -> None:
        """An entry of another author came in; `weight` is what it says its levels were multiplied with."""
        levels = values / np.float32(max(weight, _LIGHTEST))
        self._others += levels
        self._squares += dot(levels, levels)

    def take(self) -> tuple[Floats, float]:
        """What was heard since the last call, for `measure`."""
        taken = self._others, self._squares
        self._others, self._squares = np.zeros_like(self._others), 0.0
        return taken

    def measure(self, residual: Floats, others: Floats, squares: float) -> None:
        """Compare what others sent with this node's residual, of which nothing was sent yet, and follow with κ."""
        if not squares:
            return
        self._measured += 1
        found = min(1.0, max(-1.0, dot(residual, others) / squares))
        self._agreement += max(_SLOWEST, 1 / self._measured) * (found - self._agreement)
        if self._measured >= FIRST:
            self._peak = max(self._peak, self._agreement)
        self.kappa = min(MOST, max(0.0, GAIN * self._agreement)) if self.agreed else 0.0

    def state(self) -> Arrays:
        numbers = np.array([self.kappa, self._agreement, self._measured, self._peak, self._squares])
        return {"retention": numbers, "heard": self._others.copy()}

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on from `state`; ValueError when it is damaged."""
        numbers, others = state["retention"], state["heard"]
        if numbers.shape != (5,) or others.shape != self._others.shape:
            raise ValueError("the saved retention is of another model")
        kappa, agreement, measured, peak, squares = map(float, numbers)
        known = np.isfinite(numbers).all() and np.isfinite(others).all()
        if not known or not (0.0 <= kappa <= MOST and -1.0 <= agreement <= 1.0 and min(measured, squares, peak) >= 0.0):
            raise ValueError("the saved retention is out of range")
        self.kappa, self._agreement, self._measured, self._peak = kappa, agreement, int(measured), peak
        self._others, self._squares = others.astype(np.float32), squares
