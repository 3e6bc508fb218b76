"""A whole swarm in one process, on virtual time: the unmodified node over a simulated network, clock and disk.

    result = p2pnode.simulate(16, task="digits")
    result = p2pnode.simulate(64, task="digits", split="dirichlet:0.3", rounds=100, seed=7, rate="20mbit", churn=0.2)
    result = p2pnode.simulate(16, seconds=300)      # without a task the nodes only meet
    result.frame()       # a data frame with a row for each round of each node; rows() is the same as a list
    result.plot()        # accuracy over time and over traffic
    result.digest        # equal for equal arguments, in every process
    p2pnode.compare(p2pnode.simulate(task="digits", policy=name) for name in ("deltaset", "gossip")).plot()

Everything is drawn from `seed`, so a failing simulation can be run again, and its faults shrunk (network.sim.shrink).
Start reading with `scenario.py` (what is simulated, as a value), then `simulation.py` (runs it), `watching.py`
(collects curves and pictures), `result.py` (what comes out; `report.py` and `figures.py` show it, `recording.py` keeps
it) and `comparison.py` (several policies and seeds). `compute.py` lets training take virtual time; `disk.py` and
`machine_faults.py` are disks and machines that fail.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ..config.options import DescribedJob, SimOptions, TaskOption, TrainOptions
from ..config.split import Split
from ..wire.run import Aim
from .comparison import Comparison, compare
from .process import SimClock
from .result import NodeSummary, PeerCount, RoundRow, SimResult
from .run import run_scenario, run_sim
from .scenario import EPOCH, SIMULATED, Scenario, SimTraining, identity_of, make_scenario, read_scenario
from .simulation import Simulation
from .watching import OnProgress, ignore

__all__ = [
    "EPOCH",
    "SIMULATED",
    "Comparison",
    "NodeSummary",
    "PeerCount",
    "RoundRow",
    "Scenario",
    "SimClock",
    "SimResult",
    "SimTraining",
    "Simulation",
    "compare",
    "identity_of",
    "make_scenario",
    "run_scenario",
    "run_sim",
    "simulate",
]

_USUAL = SimOptions()


def simulate(
    peers: int | str = 16,
    *,
    task: str | TrainOptions | None = None,
    jobs: Mapping[str, str | Mapping[str, Any]] | None = None,
    job: DescribedJob | None = None,
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
    quarantine: str | None = None,
    no_model_swaps: bool | None = None,
    record: str | Path | None = None,
    progress: OnProgress = ignore,
) -> SimResult:
    """Simulate `peers` nodes that train `task` (without one they only meet), and return what came of it.

    `rounds` to `alone` are the fields of `SimOptions`, `split` to `no_model_swaps` those of `TrainOptions`; None means
    "not given". Values may be written as on the command line (rate="20mbit", split="labels:2").
    `task` may be a whole `TrainOptions`. Instead of a task there may be several `jobs` by name, each with its task or a
    mapping of options: jobs={"small": "digits", "wide": {"task": "digits", "hidden": 256}}; {"kind": "mean"}
    is a job of another kind. `job` is one job described in Python, such as p2pnode.Queues. `record` names a file to
    write (see recording.py); `progress` is called with the share of the rounds done and the virtual time.
    For faults, wrong clocks and options of single nodes make a `Scenario` and call `run_scenario`.

    UsageError names the wrong argument; also one that has another value in `task`, or is about training without one.
    """
    arguments = dict(locals())  # what follows `job` is, but for the last two, an option by the name of its field
    options = {
        name: arguments[name]
        for name, parameter in inspect.signature(simulate).parameters.items()
        if name not in ("task", "jobs", "job", "record", "progress") and arguments[name] != parameter.default
    }
    return run_scenario(read_scenario(options, task, jobs, job=None if job is None else job.job()), record, progress)


class _Callable(ModuleType):
    """Lets `p2pnode.simulate(...)` be called like the function in it."""

    __call__ = staticmethod(simulate)


sys.modules[__name__].__class__ = _Callable
__signature__ = inspect.signature(simulate)  # for help() and notebooks, which see the package as the callable
