"""From a task to a plan that others can follow, and from a plan back to a bench to train on."""

from __future__ import annotations

import numpy as np
from blake3 import blake3

from ..deltaset.accumulate import weights_hash
from ..errors import UsageError
from ..run import Plan
from ..tasks.find import load_task
from ..weights import to_units
from .bench import Bench
from .taskchoice import TaskChoice
from .world import OpenBench


def open_bench(choice: TaskChoice, seed: int) -> Bench:
    """Load the task and build its model and data. Takes seconds the first time: it imports torch."""
    return Bench(load_task(choice.spec, choice.options, choice.source), choice.device, seed)


def make_plan(bench: Bench, choice: TaskChoice, seed: int) -> Plan:
    """The plan a founder signs."""
    return Plan(
        task=choice.spec,
        version=bench.task.version,
        options=bench.task.options,
        parameters=bench.layout.size,
        layout=bench.layout.hash,
        genesis=weights_hash(to_units(bench.genesis)).hex(),
        probe=probe_hash(bench),
        seed=seed,
        policy=choice.policy,
        settings=dict(choice.settings),
        round_seconds=choice.round_seconds,
        max_steps=choice.max_steps,
    )


def follow_plan(plan: Plan, own: TaskChoice, open_bench: OpenBench) -> Bench:
    """A bench for somebody else's plan; UsageError when what is installed here is not what the plan was made with.

    The genesis may differ (another torch, another device): then the weights come from a peer.
    """
    spec = own.spec if own.source is not None and own.spec == plan.task else plan.task
    choice = TaskChoice(spec, plan.options, own.source, device=own.device)
    try:
        bench = open_bench(choice, plan.seed)
    except UsageError as error:
        raise UsageError(f"this run learns {plan.task!r}, which is not to be had here: {error}") from None
    if bench.task.version != plan.version or bench.layout.hash != plan.layout:
        raise UsageError(
            f"this run learns {plan.task!r} version {plan.version} with {plan.parameters:,} parameters; installed here "
            f"is version {bench.task.version} with {bench.layout.size:,}; install the same version"
        )
    return bench


def has_genesis(plan: Plan, bench: Bench) -> bool:
    """Whether this machine's seed gives the run's first weights."""
    return weights_hash(to_units(bench.genesis)).hex() == plan.genesis


def probe_hash(bench: Bench) -> str:
    digest = blake3()
    for name, column in sorted(bench.task.probe().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(column.numpy()).tobytes())
    return digest.hexdigest()
