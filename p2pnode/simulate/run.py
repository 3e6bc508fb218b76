"""Runs a scenario to its end, on virtual time."""

from __future__ import annotations

import gc
import time
from collections.abc import Coroutine
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..network.sim.virtual_time import run_virtual
from .compute import one_thread
from .recording import Recording
from .result import SimResult
from .scenario import Scenario, check_scenario
from .simulation import Simulation
from .watching import OnProgress, ignore

T = TypeVar("T")


def run_scenario(scenario: Scenario, record: str | Path | None = None, progress: OnProgress = ignore) -> SimResult:
    """Run a scenario to its end; raises UsageError when it cannot be run, and what a node raised that no node may."""
    check_scenario(scenario)
    begun = time.perf_counter()
    with closing(Recording(record)) as recording, nullcontext() if scenario.training is None else one_thread():
        recording.plan(scenario.facts())
        result = run_sim(Simulation(scenario, recording, progress).run())
        result = replace(result, real_seconds=time.perf_counter() - begun)
        recording.end(result.nodes, result.summary())
        return result


def run_sim(main: Coroutine[Any, Any, T]) -> T:
    """Run in virtual time. Garbage is collected rarely: thousands of live records make a collection slow."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        return run_virtual(main)
    finally:
        gc.set_threshold(*thresholds)
