"""Training goes on while nodes exchange: what becomes of the steps done meanwhile (docs/design.md, correction)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..weights import Floats

TAU = 3.0  # times the running median: beyond it, steps done meanwhile started from the wrong place
WINDOW = 25  # distances the median is of


@dataclass(frozen=True)
class Keep:
    """Go on from `x`: the new weights with the progress made meanwhile on top; the round started at A_new."""

    x: Floats
    distance: float


@dataclass(frozen=True)
class Restart:
    """Go on from A_new itself; `progress` belongs into the residual."""

    progress: Floats
    distance: float


@dataclass(frozen=True)
class RunningMedian:
    """The median of the last WINDOW distances; 0 while there are none."""

    values: tuple[float, ...] = ()

    @property
    def median(self) -> float:
        return float(np.median(self.values)) if self.values else 0.0

    def after(self, value: float) -> RunningMedian:
        return RunningMedian((*self.values, value)[-WINDOW:])


def corrected(x_now: Floats, x_snapshot: Floats, a_new: Floats, tau: float, running_median: float) -> Keep | Restart:
    """Keep the steps done since `x_snapshot` on top of `a_new`, or start again there.

    The distance is ‖x_now − A_new‖; beyond `tau` times its running median progress is taken back into the residual.
    Without a median yet (0) it is kept. ValueError when x_now is not finite: then it is not progress.
    """
    distance = float(np.linalg.norm((x_now - a_new).astype(np.float64)))
    if not np.isfinite(distance):
        raise ValueError("the weights in training are not finite numbers")
    progress = x_now - x_snapshot
    if running_median > 0 and distance > tau * running_median:
        return Restart(progress, distance)
    return Keep(a_new + progress, distance)
