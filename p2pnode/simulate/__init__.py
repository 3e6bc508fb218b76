"""A whole swarm in one process, on virtual time: the unmodified node over a simulated network, clock and disk.

    result = p2pnode.simulate(16, task="digits")
    result = p2pnode.simulate(64, task="digits", split="dirichlet:0.3", rounds=100, seed=7, rate="20mbit", churn=0.2)
    result = p2pnode.simulate(16, seconds=300)      # without a task the nodes only meet
    result.rows()        # a row for each round of each node (who saw how many peers when, without a task), for a plot
    result.digest        # equal for equal arguments, in every process

Everything is drawn from `seed`, so a failing simulation can be run again, and its faults shrunk (network.sim.shrink).
Start reading with `scenario.py` (what is simulated, as a value), then `simulation.py` (runs it), `watching.py`
(collects curves and pictures) and `result.py` (what comes out).
"""

from __future__ import annotations

import gc
import inspect
import sys
import time
from collections.abc import Coroutine, Mapping
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from ..config.options import SimOptions, TaskOption, TrainOptions
from ..config.resolve import read_simulation
from ..config.settings import read_jobs
from ..config.split import Split
from ..network.sim.virtual_time import run_virtual
from ..wire.errors import UsageError
from ..wire.run import Aim
from .compute import one_thread
from .process import SimClock
from .recording import Recording
from .result import NodeSummary, RoundRow, Sample, SimResult
from .scenario import EPOCH, SIMULATED, Scenario, SimTraining, check_scenario, identity_of, make_scenario, training_of
from .simulation import Simulation
from .watching import OnProgress, ignore

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
    "make_scenario",
    "run_scenario",
    "run_sim",
    "simulate",
]

T = TypeVar("T")
_USUAL = SimOptions()


def simulate(
    peers: int | str = 16,
    *,
    task: str | TrainOptions | None = None,
    jobs: Mapping[str, str | Mapping[str, Any]] | None = None,
    rounds: int | str = _USUAL.rounds,
    seed: int | str = _USUAL.seed,
    seconds: float | str | None = None,
    latency: float | str = _USUAL.latency,
    rate: float | str | None = None,
    loss: float | str = _USUAL.loss,
    duplicate: float | str = _USUAL.duplicate,
    reorder: float | str = _USUAL.reorder,
    churn: float | str = _USUAL.churn,
    speeds: tuple[float, float] | str = _USUAL.speeds,
    circle: int | str = _USUAL.circle,
    alone: int | str = _USUAL.alone,
    split: Split | str | None = None,
    policy: str | None = None,
    settings: Mapping[str, float] | None = None,
    aim: Aim | str | None = None,
    round_seconds: float | str | None = None,
    task_options: Mapping[str, TaskOption] | None = None,
    data: str | Path | None = None,
    share_data: bool | None = None,
    reserve: bool | None = None,
    no_model_swaps: bool | None = None,
    record: str | Path | None = None,
    progress: OnProgress = ignore,
) -> SimResult:
    """Simulate `peers` nodes that train `task` (without one they only meet), and return what came of it.

    `rounds` to `alone` are the fields of `SimOptions`, `split` to `no_model_swaps` those of `TrainOptions`; None means
    "not given". Values may be written as on the command line (rate="20mbit", split="labels:2").
    `task` may be a whole `TrainOptions`. Instead of a task there may be several `jobs` by name, each with its task or a
    mapping of options: jobs={"small": "digits", "wide": {"task": "digits", "hidden": 256}}. `record` names a file to
    write (see recording.py); `progress` is called with the share of the rounds done and the virtual time. For faults,
    wrong clocks and options of single nodes make a `Scenario` and call `run_scenario`.

    UsageError names the wrong argument; also one that has another value in `task`, or is about training without one.
    """
    arguments = dict(locals())  # what follows `jobs` is, but for the last two, an option by the name of its field
    options = {
        name: arguments[name]
        for name, parameter in inspect.signature(simulate).parameters.items()
        if name not in ("task", "jobs", "record", "progress") and arguments[name] != parameter.default
    }
    sim, train = read_simulation(options, lambda item: item.field.rpartition(".")[2])
    several = () if jobs is None else read_jobs([_job_table(name, job) for name, job in jobs.items()])
    if several and task is not None:
        raise UsageError("task contradicts jobs; name the task of each job there")
    task = SIMULATED if several else task
    if task is None and (
        wrong := [name for name in options if name in (*train, "rounds", "circle", "speeds", "alone")]
    ):
        raise UsageError(f"{wrong[0]} is about training; name what is trained, as in task='digits', or leave it out")
    training = None if task is None else training_of(task, train, sim, several)
    return run_scenario(make_scenario(sim, training), record, progress)


def _job_table(name: str, job: str | Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, **({"task": job} if isinstance(job, str) else job)}


def run_scenario(scenario: Scenario, record: str | Path | None = None, progress: OnProgress = ignore) -> SimResult:
    """Run a scenario to its end; raises UsageError when it cannot be run, and what a node raised that no node may."""
    check_scenario(scenario)
    begun = time.perf_counter()
    with closing(Recording(record)) as recording, nullcontext() if scenario.training is None else one_thread():
        recording.plan(scenario.facts())
        result = run_sim(Simulation(scenario, recording, progress).run())
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

    __call__ = staticmethod(simulate)


sys.modules[__name__].__class__ = _Callable
__signature__ = inspect.signature(simulate)  # for help() and notebooks, which see the package as the callable
