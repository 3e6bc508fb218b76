"""A whole swarm in one process, on virtual time: the unmodified node over a simulated network, clock and disk.

    result = simulate(peers=16, seed=7, seconds=300, loss=0.05, churn=0.2)
    result.rows()        # who saw how many peers when, for a plot
    result.digest        # equal for equal arguments, in every process

Everything is drawn from `seed`; a failing seed can be run again, and its faults shrunk (network.sim.shrink).
"""

from __future__ import annotations

import gc
import random
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from ..network.base import Seconds
from ..network.sim import Fault, Links, churn_faults
from ..network.virtual import run_virtual
from .plan import EPOCH, Plan, identity_of
from .process import SimClock
from .result import Sample, SimResult
from .simulation import Simulation

__all__ = [
    "EPOCH",
    "Plan",
    "Sample",
    "SimClock",
    "SimResult",
    "Simulation",
    "identity_of",
    "run_plan",
    "run_sim",
    "simulate",
]

T = TypeVar("T")


def simulate(
    peers: int = 16,
    *,
    seed: int = 0,
    seconds: Seconds = 120.0,
    latency: Seconds = 0.05,
    loss: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    churn: float = 0.0,
    faults: Iterable[Fault] = (),
    skew: Mapping[int, Seconds] | None = None,
) -> SimResult:
    """Run a swarm for so many virtual seconds. `churn` is the share of nodes that crash and come back on the way."""
    links = Links(latency, 0.4 * latency, loss=loss, duplicate=duplicate, reorder=reorder)
    rng = random.Random(f"churn {seed}")
    drawn = churn_faults(rng, range(1, peers), churn, 0.2 * seconds, 0.4 * seconds)
    plan = Plan(peers, seed, seconds, links, (*faults, *drawn), skew or {})
    return run_plan(plan)


def run_plan(plan: Plan) -> SimResult:
    return run_sim(Simulation(plan).run())


def run_sim(main: Coroutine[Any, Any, T]) -> T:
    """Run in virtual time. Garbage is collected rarely: thousands of live records make a collection slow."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        return run_virtual(main)
    finally:
        gc.set_threshold(*thresholds)
