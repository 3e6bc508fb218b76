"""A whole swarm in one process, on virtual time: the unmodified node over a simulated network, clock and disk.

    result = p2pnode.simulate(16, seconds=300, seed=7, loss=0.05, churn=0.2)      # meeting only
    result = p2pnode.simulate(64, task="digits", split="dirichlet:0.3", rounds=100, seed=7, rate="20mbit")
    result.rows()        # a row for each round of each node (who saw how many peers when, without a task), for a plot
    result.digest        # equal for equal arguments, in every process

Everything is drawn from `seed`; a failing seed can be run again, and its faults shrunk (network.sim.shrink).
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ..config.options import TrainOptions
from ..config.split import parse_split
from ..config.units import read_rate, read_speeds, read_time
from ..network.sim import Fault, Links, churn_faults
from ..network.sim.virtual_time import run_virtual
from ..wire.errors import UsageError
from ..wire.run import Aim
from ..wire.types import Seconds
from .compute import one_thread
from .process import SimClock
from .recording import Recording
from .result import NodeSummary, RoundRow, Sample, SimResult
from .scenario import EPOCH, SIMULATED, Scenario, SimTraining, check_scenario, identity_of
from .simulation import Simulation
from .watching import ALONE, OnProgress, ignore

__all__ = [
    "EPOCH",
    "SIMULATED",
    "NodeSummary",
    "RoundRow",
    "Sample",
    "Scenario",
    "SimClock",
    "SimResult",
    "SimTraining",
    "Simulation",
    "identity_of",
    "run_scenario",
    "run_sim",
    "simulate",
]

MEETING: Seconds = 120.0  # how long a swarm that only meets is simulated
SPREAD: Seconds = 10.0  # within which nodes start, where that is not too many at once
ARRIVALS = 6.4  # nodes a second, at most: larger crowds clog the links of those who keep the directory
LIMIT = 4.0  # times the usual length, after which a simulation ends whether or not all are done

T = TypeVar("T")


def simulate(
    peers: int = 16,
    *,
    task: str | TrainOptions | None = None,
    split: str | None = None,
    rounds: int | None = None,
    seed: int = 0,
    seconds: Seconds | None = None,
    latency: Seconds | str = 0.05,
    rate: float | str | None = None,
    loss: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    churn: float = 0.0,
    faults: Iterable[Fault] = (),
    skew: Mapping[int, Seconds] | None = None,
    speeds: str | tuple[float, float] | None = None,
    circle: int | None = None,
    aim: Aim | None = None,
    policy: str | None = None,
    settings: Mapping[str, float] | None = None,
    share_data: bool | None = None,
    record: str | Path | None = None,
    alone: int = ALONE,
    progress: OnProgress = ignore,
) -> SimResult:
    """Run a swarm: with a task until every node has done `rounds` (at most `seconds` of virtual time), else `seconds`.

    `latency` (seconds or "50ms") and `rate` (bytes a second or "20mbit"; what one node can send) are charged for every
    message by its size. `speeds`: each node's number of local steps a second is drawn between so many times a slow
    one's. `churn` is the share of nodes that crash and come back on the way. Nodes find their circles
    by themselves, as the run's `aim` wants them, or are declared to be in circles of `circle`. `settings` are the merge
    policy's. With `share_data` samples travel as well. `record` names a file to write (see recording.py). `alone` nodes
    are trained by themselves too, for comparison. `progress` is told the share done and the virtual time.

    What is left out is as `Lesson` and `TaskChoice` have it: 100 rounds of the delta set on equal shares of the data.
    UsageError when something is said of learning without a task, or otherwise than the task was chosen.
    """
    dealt = None if split is None else parse_split(split)
    how = _said(policy=policy, settings=settings, aim=aim, split=dealt, share_data=share_data)
    drawn = None if speeds is None else read_speeds(speeds)
    where = _said(rounds=rounds, circle=circle, speeds=drawn)
    lesson = _lesson(task, how, where)
    delay = read_time(latency)
    links = Links(delay, 0.4 * delay, inf if rate is None else read_rate(rate), loss, duplicate, reorder)
    spread = max(SPREAD, peers / ARRIVALS)
    usual = MEETING if lesson is None else spread + lesson.usual_seconds
    limit = seconds or (MEETING if lesson is None else LIMIT * usual)
    crashes = _crashes(peers, seed, churn, usual if lesson is not None else limit)
    plan = Scenario(peers, seed, limit, links, (*faults, *crashes), skew or {}, spread, training=lesson)
    check_scenario(plan)
    return run_scenario(plan, record, alone, progress)


def _said(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _lesson(task: str | TrainOptions | None, how: Mapping[str, Any], where: Mapping[str, Any]) -> SimTraining | None:
    """`how` goes into the training options, `where` beside them."""
    said = (*how, *where)
    if task is None and said:
        raise UsageError(f"{said[0]} is about learning; name what is learned, as in task='digits', or leave it out")
    if task is None:
        return None
    options = task if isinstance(task, TrainOptions) else replace(SIMULATED, task=task)
    for name, value in how.items():
        given = getattr(options, name)
        if value != given and given != getattr(TrainOptions(), name):
            raise UsageError(f"{name} is {value} here and {given} where the task was chosen; say it once")
    return SimTraining(replace(options, **how), **where)


def _crashes(peers: int, seed: int, churn: float, seconds: Seconds) -> list[Fault]:
    if not 0.0 <= churn <= 1.0:
        raise UsageError(f"--churn {churn:g} is no share of the nodes; it lies between 0 and 1")
    return churn_faults(random.Random(f"churn {seed}"), range(1, peers), churn, 0.2 * seconds, 0.4 * seconds)


def run_scenario(
    scenario: Scenario, record: str | Path | None = None, alone: int = ALONE, progress: OnProgress = ignore
) -> SimResult:
    """Run a plan to its end; raises what a node raised that no node may raise."""
    begun = time.perf_counter()
    with closing(Recording(record)) as recording, nullcontext() if scenario.training is None else one_thread():
        recording.plan(scenario.facts())
        result = run_sim(Simulation(scenario, recording, progress, alone).run())
        result = replace(result, real_seconds=time.perf_counter() - begun)
        recording.end(result.summaries, result.facts())
        return result


def run_sim(main: Coroutine[Any, Any, T]) -> T:
    """Run in virtual time. Garbage is collected rarely: thousands of live records make a collection slow."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 20, 100)
    try:
        return run_virtual(main)
    finally:
        gc.set_threshold(*thresholds)


class _Callable(ModuleType):
    """Lets `p2pnode.simulate(...)` be called like the function in it."""

    def __call__(self, *args: Any, **named: Any) -> SimResult:
        return simulate(*args, **named)


sys.modules[__name__].__class__ = _Callable
