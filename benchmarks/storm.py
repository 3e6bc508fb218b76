"""Whole swarms in a storm of faults, on virtual time: does anything that must hold ever break?

    python -m benchmarks.storm [--json] [--quick] [--hours N] [--first-seed N] [--processes N]
    python -m benchmarks.storm --seed 17 [--count 20]        one schedule: prints its faults, shrinks them if it fails

A schedule is a swarm of four to six nodes that learn and pass on data for some minutes, and a list of faults drawn from
its seed: links that lose, delay, cut and split; daemons and processes that die at any time, step or disk operation;
disks that are full, slow, torn, rotten or set back in time; clocks that jump; processes that stand still. Then comes a
calm, in which everybody must train again, and a quiet phase, after which all must agree (benchmarks/storm_checks.py).
The seed of a failed schedule is printed with the smallest list of faults that still fails.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from benchmarks.common import Figures, Report, Row, progress, run
from benchmarks.storm_checks import SwarmChecks
from p2pnode.config.split import parse_split
from p2pnode.network.sim import Fault, Links, draw_faults, shrink
from p2pnode.network.sim.faults import NETWORK_FAULTS, PROCESS_FAULTS
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread

HOURS, HOURS_QUICK = 1000.0, 20.0
QUICK_SECONDS = 100.0  # of real time: a quick run stops then, and says how far it came
START = 30.0  # virtual seconds before the first fault
LOOK_EVERY = 10.0
CALM = 150.0  # after the last fault everybody trains again
QUIET = 90.0
LEAST_ROUNDS = 2  # of every node in the calm
ROUND_SECONDS = 20.0
RESTART_AFTER = 5.0
MOST_SHRUNK = 2  # failing schedules that are shrunk in one run


@dataclass(frozen=True)
class Outcome:
    """What came of one schedule."""

    seed: int
    seconds: float  # virtual
    faults: tuple[Fault, ...]
    violations: tuple[str, ...]
    starts: int


def schedule(seed: int, count: int | None = None) -> tuple[Scenario, float]:
    """The swarm and the faults of a seed, and when the last fault is over."""
    rng = random.Random(f"storm {seed}")
    peers, storm = rng.choice((4, 4, 5, 6)), rng.choice((120.0, 240.0, 480.0))
    drawn = draw_faults(
        rng,
        peers,
        storm,
        count or rng.choice((3, 8, 20)),
        (*NETWORK_FAULTS, *PROCESS_FAULTS),
        victim=rng.randrange(peers),
    )
    faults = tuple(
        replace(fault, time=START + fault.time, amount=min(fault.amount, fault.time))
        if fault.kind == "rollback"
        else replace(fault, time=START + fault.time)
        for fault in drawn
    )
    links = Links(loss=rng.choice((0.0, 0.02)), duplicate=rng.choice((0.0, 0.02)), reorder=rng.choice((0.0, 0.05)))
    options = replace(
        SIMULATED,
        task_options={"hidden": 8},
        split=parse_split(rng.choice(("iid", "labels:2", "dirichlet:0.3"))),
        share_data=rng.random() < 0.5,
        round_seconds=ROUND_SECONDS,
    )
    training = SimTraining(options, rounds=10**6, mean_steps=3.0, speeds=(1.0, 2.0))
    plan = Scenario(peers, seed, START + storm, links, faults, sample_every=0.0, restart_after=RESTART_AFTER)
    return replace(plan, training=training), START + storm


def play(seed: int, faults: Sequence[Fault] | None = None, count: int | None = None) -> Outcome:
    """Run one schedule, or other faults in its swarm, and collect what was wrong."""
    plan, over = schedule(seed, count)
    if faults is not None:
        plan = replace(plan, faults=tuple(faults))
    with one_thread():
        violations, seconds, starts = run_sim(_play(plan, over))
    return Outcome(seed, seconds, plan.faults, violations, starts)


async def _play(plan: Scenario, over: float) -> tuple[tuple[str, ...], float, int]:
    simulation = Simulation(plan)
    checks = SwarmChecks(simulation)
    found: dict[str, None] = {}  # each once, in the order in which they were seen

    async def pass_time(seconds: float) -> None:
        for _ in range(round(seconds / LOOK_EVERY)):
            await simulation.go_on(LOOK_EVERY)
            found.update(dict.fromkeys(checks.look()))

    try:
        await simulation.start()
        await pass_time(over)
        checks.begin_calm()
        await pass_time(CALM)
        found.update(dict.fromkeys(checks.idle(LEAST_ROUNDS)))
        simulation.rest()
        await pass_time(QUIET)
        found.update(dict.fromkeys(checks.settled()))
        result = await simulation.finish()
        found.update(dict.fromkeys(f"left over: {what}" for what in result.left_over))
        seconds = result.virtual_seconds
    except Exception as bug:  # whatever escapes a node is what is looked for here
        found[f"{type(bug).__name__}: {bug!r:.300}"] = None
        seconds = over + CALM + QUIET
    return tuple(found), seconds, sum(simulation.starts)


def smallest(outcome: Outcome) -> list[Fault]:
    """The smallest list of faults with which the schedule still fails."""
    return shrink(outcome.faults, lambda faults: bool(play(outcome.seed, faults).violations))


def measure(arguments: argparse.Namespace) -> Report:
    if arguments.seed is not None:
        return _one(arguments.seed, arguments.count)
    hours = arguments.hours or (HOURS_QUICK if arguments.quick else HOURS)
    begun, limit = time.monotonic(), QUICK_SECONDS if arguments.quick and not arguments.hours else float("inf")
    kinds: Counter[str] = Counter()
    failed: list[Outcome] = []
    played, virtual, starts, last = 0, 0.0, 0, arguments.first_seed
    for outcome in _played(arguments.first_seed, arguments.processes):
        played, virtual, starts = played + 1, virtual + outcome.seconds, starts + outcome.starts
        last = max(last, outcome.seed)
        kinds.update(fault.kind for fault in outcome.faults)
        if outcome.violations:
            failed.append(outcome)
            progress(f"seed {outcome.seed}: {'; '.join(outcome.violations[:4])}")
        if played % 50 == 0:
            progress(f"{virtual / 3600:.1f} swarm-hours, {sum(kinds.values())} faults, {len(failed)} failed")
        if virtual >= 3600 * hours or time.monotonic() - begun > limit:
            break
    rows: list[Row] = [
        {"seed": outcome.seed, "violation": text} for outcome in failed for text in outcome.violations[:3]
    ]
    for outcome in failed[:MOST_SHRUNK]:
        progress(f"seed {outcome.seed} fails with {_words(smallest(outcome))}")
    return Report(
        {
            "swarm_hours": virtual / 3600,
            "schedules": played,
            "faults": sum(kinds.values()),
            "starts": starts,
            "violations": sum(len(outcome.violations) for outcome in failed),
            "failed_schedules": len(failed),
            "first_seed": arguments.first_seed,
            "last_seed": last,
            "real_seconds": time.monotonic() - begun,
            **{f"faults_{kind.replace(' ', '_')}": count for kind, count in sorted(kinds.items())},
        },
        rows,
    )


def _one(seed: int, count: int | None) -> Report:
    outcome = play(seed, count=count)
    for fault in outcome.faults:
        progress(str(fault))
    rows: list[Row] = [{"seed": seed, "violation": text} for text in outcome.violations]
    if outcome.violations:
        progress(f"it fails with {_words(smallest(outcome))}")
    figures: Figures = {"seed": seed, "faults": len(outcome.faults), "violations": len(outcome.violations)}
    return Report({**figures, "virtual_seconds": outcome.seconds}, rows)


def _words(faults: Sequence[Fault]) -> str:
    return json.dumps([asdict(fault) for fault in faults])


def _played(first: int, processes: int) -> Iterator[Outcome]:
    """Outcomes of schedules, as they come."""
    seeds = iter(range(first, sys.maxsize))
    if processes == 1:
        yield from map(play, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(play, seeds_in_turn(seeds))


def seeds_in_turn(seeds: Iterator[int], most: int = 1_000_000) -> Iterator[int]:
    """The first of the seeds: a pool reads its input ahead, so it needs an end."""
    for _, seed in zip(range(most), seeds, strict=False):
        yield seed


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--hours", type=float, help="swarm-hours to simulate; 1000, with --quick 20 or 100 seconds")
    made.add_argument("--first-seed", type=int, default=1)
    made.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    made.add_argument("--seed", type=int, help="play this schedule only, and shrink its faults if it fails")
    made.add_argument("--count", type=int, help="how many faults the schedule of --seed has")
    return made


if __name__ == "__main__":
    run("storm", measure, parser())
