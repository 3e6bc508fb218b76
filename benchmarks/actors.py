"""Four laptops with policies of their own: what is a shared critic worth, and what do shared rollouts add?

    python -m benchmarks.actors --json [--quick] [--seeds 1,2] [--suites cartpole,mixed] [--arms own,queue]
        [--kept FILE] [--processes 2]

Four simulated nodes learn variants of one problem (CartPole, Acrobot, MountainCar with a reward for energy), or `mixed`
two of CartPole and two of Acrobot. `heldout` has all three problems in variants that no other suite has; it was not
looked at while anything was tuned, nor were the seeds of the full run. In the baseline `own`, with the same seeds in
the same run, each has a critic of its own. `gain_…` is the area under the mean return of the latest 20 episodes (above
the lowest possible return), relative to `own`, and the mean of the suites with one problem; `steps_to_target_ratio` are
the steps until a target return, relative to `own`. `others_slowdown` is what the others lose when the critic's owner
dies and one environment raises. `env_steps_per_s_vs_cleanrl` compares one laptop alone, by processor time, with a loop
as CleanRL's ppo.py.

Runs are under way in two processes at a time; the whole takes about half an hour of processor time. `--kept FILE` reads
the runs that are finished from a file and adds to it, so that what was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from math import inf
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import p2pnode
from benchmarks.actors_cleanrl import cleanrl_steps
from benchmarks.actors_envs import Acrobots, CartPoles, MountainCars, NumpyEnvs
from benchmarks.common import Figures, Report, Row, numbers, progress_row, run, words
from p2pnode.config.options import JobOptions
from p2pnode.jobs.actors.critic import Critic, first_weights
from p2pnode.jobs.actors.job import ActorsJob
from p2pnode.jobs.actors.learner import PolicyLearner
from p2pnode.jobs.actors.plan import ActorsPlan, ActorsSettings
from p2pnode.network.sim import Links
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.wire.errors import UsageError

Problem = tuple[type[NumpyEnvs], dict[str, float]]

SUITES: dict[str, tuple[Problem, ...]] = {
    "cartpole": (
        (CartPoles, {"pole": 0.25}), (CartPoles, {"pole": 1.0}), (CartPoles, {"gravity": 20.0}),
        (CartPoles, {"force": 5.0}),
    ),
    "acrobot": (
        (Acrobots, {}), (Acrobots, {"length": 1.3}), (Acrobots, {"mass": 1.3}), (Acrobots, {"torque": 0.8}),
    ),
    "mountaincar": (
        (MountainCars, {}), (MountainCars, {"force": 0.0012}), (MountainCars, {"gravity": 0.0028}),
        (MountainCars, {"gravity": 0.0022}),
    ),
    "mixed": (
        (CartPoles, {"pole": 0.25}), (CartPoles, {"pole": 1.0}), (Acrobots, {}), (Acrobots, {"length": 1.3}),
    ),
    "heldout": (
        (CartPoles, {"pole": 0.7, "gravity": 14.0}), (CartPoles, {"force": 7.0}), (Acrobots, {"mass": 0.8}),
        (MountainCars, {"force": 0.0011, "gravity": 0.0027}),
    ),
}  # fmt: skip
ALIKE = ("cartpole", "acrobot", "mountaincar")  # suites with one problem
ARMS: dict[str, dict[str, Any]] = {
    "own": {"mode": "own", "share": False},
    "queue": {"mode": "queue", "share": False},
    "replicas": {"mode": "replicas", "share": False},
    "shared_rollouts": {"mode": "queue", "share": True},
}
DEFAULT_ARM = "queue"  # what p2pnode/jobs/actors/plan.py has as its defaults
TARGETS = {CartPoles: 195.0, Acrobots: -200.0, MountainCars: -150.0}
FLOORS = {CartPoles: 0.0, Acrobots: -500.0, MountainCars: -200.0}
ITERATIONS = 30  # rollouts of each laptop
ROLLOUT, RECENT = 512, 20
LINKS = Links(latency=0.02, rate=2.5e6)  # 20 Mbit/s


class Variant(p2pnode.PolicyTask):
    """One laptop of a suite. Keeps its environments, which know their episodes."""

    def __init__(self, problem: Problem, raises_after: int = 0) -> None:
        self._envs, self._given = problem
        self._raises_after = raises_after
        self.made: list[NumpyEnvs] = []

    def env(self) -> NumpyEnvs:
        make: Any = self._envs
        envs: NumpyEnvs = make(self.envs, **self._given)
        envs.raises_after = self._raises_after
        self.made.append(envs)
        return envs

    def policy(self) -> nn.Module:
        envs = self.made[-1]
        layers = [nn.Linear(envs.width, 64), nn.Linear(64, 64), nn.Linear(64, envs.actions.choices)]
        for layer in layers:
            nn.init.orthogonal_(layer.weight, 2**0.5 if layer is not layers[-1] else 0.01)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])

    def curve(self, steps: int) -> np.ndarray[Any, Any]:
        """The mean return of the latest 20 episodes above the floor, after each rollout."""
        episodes = [one for envs in self.made for one in envs.episodes]
        floor, found = FLOORS[self._envs], []
        for at in range(ROLLOUT, steps + 1, ROLLOUT):
            known = [reward for step, reward in episodes if step <= at][-RECENT:]
            found.append((mean(known) if known else floor) - floor)
        return np.array(found)

    def steps_to_target(self, steps: int) -> int:
        """Steps until the return has reached its target; all of them where it never did."""
        above = np.flatnonzero(self.curve(steps) >= TARGETS[self._envs] - FLOORS[self._envs])
        return int((above[0] + 1) * ROLLOUT if len(above) else steps)


class Cell(NamedTuple):
    """One run of four laptops."""

    suite: str
    arm: str
    seed: int
    iterations: int


def scenario(tasks: Sequence[Variant], seed: int, **given: Any) -> Scenario:
    job = JobOptions("critic", "actors", {"tasks": list(tasks), "rollout": ROLLOUT, **given})
    training = SimTraining(SIMULATED, rounds=10**6, jobs=(job,))
    return Scenario(len(tasks), seed=seed, seconds=inf, links=LINKS, spread=0.5, sample_every=0.0, training=training)


def learn(cell: Cell) -> tuple[list[Variant], Figures]:
    """One run: the laptops' tasks, and what it took."""
    tasks = [Variant(problem) for problem in SUITES[cell.suite]]

    async def main() -> Figures:
        simulation = Simulation(scenario(tasks, cell.seed, **ARMS[cell.arm]))
        await simulation.start()
        assert simulation.watch is not None
        while len(jobs := jobs_of(simulation)) < 4 or min(job.iterations for job in jobs) < cell.iterations:
            await simulation.learn(simulation.watch, 2.0)
        sent = sum(process.node.status().traffic.sent_bytes for process in simulation.processes.values())
        learners = [job.learner for job in jobs if job.learner is not None]
        found: Figures = {
            "kb_per_1000_steps": sent / max(1, sum(learner.steps for learner in learners)),
            "asked": sum(job.asked for job in jobs),
            "in_time": sum(job.in_time for job in jobs),
            "switched_off": sum(not learner.trust.shared for learner in learners),
        }
        await simulation.finish()
        return found

    with one_thread():
        return tasks, run_sim(main())


def run_cell(cell: Cell) -> Figures:
    """What one run brought: area and steps to the target are means of the laptops."""
    tasks, took = learn(cell)
    steps = cell.iterations * ROLLOUT
    return {
        **cell._asdict(),
        "area": mean(float(task.curve(steps).mean()) for task in tasks),
        "steps_to_target": mean(task.steps_to_target(steps) for task in tasks),
        **took,
    }


def jobs_of(simulation: Simulation) -> list[ActorsJob]:
    found = (process.node.jobs.jobs.get("critic") for _, process in sorted(simulation.processes.items()))
    return [job for job in found if isinstance(job, ActorsJob)]


def others_pace(seed: int, seconds: float, disturbed: bool) -> float:
    """Steps that laptops 1 and 2 make in some virtual time, while the owner dies and laptop 3 raises, or not."""
    problems = SUITES["cartpole"]
    tasks = [Variant(problem, 5 * ROLLOUT * (disturbed and problem is problems[3])) for problem in problems]

    async def main() -> float:
        settings = {"mode": "queue", "share": True}
        simulation = Simulation(scenario(tasks, seed, **settings))
        await simulation.start()
        assert simulation.watch is not None
        await simulation.learn(simulation.watch, 10.0)
        if disturbed:
            owner = next(index for index, process in simulation.processes.items() if _owns(process.node))
            simulation.crash(owner)
        await simulation.learn(simulation.watch, seconds)
        found = [
            job.learner.steps
            for index in (1, 2)
            if index in simulation.processes
            and isinstance(job := simulation.processes[index].node.jobs.jobs.get("critic"), ActorsJob)
            and job.learner is not None
        ]
        await simulation.finish()
        return mean(found)

    with one_thread():
        return run_sim(main())


def _owns(node: Any) -> bool:
    job = node.jobs.jobs.get("critic")
    return isinstance(job, ActorsJob) and job.keeper.works()


def own_loop_ratio(rollouts: int) -> Figures:
    """Environment steps per processor second of one laptop alone, and of a loop built as CleanRL's, in turns."""
    import gymnasium

    class Plain(p2pnode.PolicyTask):
        def env(self) -> Any:
            return gymnasium.make("CartPole-v1")

        def policy(self) -> nn.Module:
            return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))

    settings = ActorsSettings(mode="own", rollout=ROLLOUT)
    learner = PolicyLearner(Plain(), ActorsPlan(1, settings), 1)
    critic = Critic(settings.features, settings.width, first_weights(settings.features, settings.width, 1), 1)
    ours = theirs = 0.0
    with one_thread():
        baseline = cleanrl_steps(Plain.envs, ROLLOUT // Plain.envs)
        for number in range(rollouts + 1):
            begun = time.process_time()
            rollout, _ = learner.collect()
            learner.learn(rollout, learner.judge(rollout), critic.values(rollout.features), critic, [])
            middle = time.process_time()
            next(baseline)
            if number:  # the first is for warming up
                ours += middle - begun
                theirs += time.process_time() - middle
    return {
        "env_steps_per_s": rollouts * ROLLOUT / ours,
        "cleanrl_env_steps_per_s": rollouts * ROLLOUT / theirs,
        "env_steps_per_s_vs_cleanrl": theirs / ours,
    }


def wanted(arguments: argparse.Namespace) -> list[Cell]:
    """The runs that were asked for; UsageError for a suite or an arm that does not exist."""
    quick = arguments.quick
    seeds = arguments.seeds or ([1] if quick else list(range(11, 21)))
    suites = arguments.suites or (["cartpole"] if quick else list(SUITES))
    arms = arguments.arms or list(ARMS)
    if unknown := [*(set(suites) - set(SUITES)), *(set(arms) - set(ARMS))]:
        raise UsageError(f"unknown: {', '.join(unknown)}; suites are {', '.join(SUITES)}, arms {', '.join(ARMS)}")
    if "own" not in arms:
        raise UsageError("--arms needs own, the baseline")
    iterations = 12 if quick else ITERATIONS
    return [Cell(suite, arm, seed, iterations) for seed, suite, arm in product(seeds, suites, arms)]


def read_kept(file: Path | None) -> dict[Cell, Figures]:
    """The finished runs in a file. A last line that was cut off is left out."""
    found: dict[Cell, Figures] = {}
    for line in file.read_text().splitlines() if file is not None and file.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found[Cell(*(row[name] for name in Cell._fields))] = row
    return found


def run_cells(cells: Sequence[Cell], processes: int) -> Iterator[Figures]:
    if processes == 1 or len(cells) == 1:
        yield from map(run_cell, cells)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        for done in as_completed([pool.submit(run_cell, cell) for cell in cells]):
            yield done.result()


def measure(arguments: argparse.Namespace) -> Report:
    cells, quick = wanted(arguments), arguments.quick
    known = read_kept(arguments.kept)
    for found in run_cells([cell for cell in cells if cell not in known], arguments.processes):
        known[Cell(*(found[name] for name in Cell._fields))] = found  # type: ignore[arg-type]
        progress_row({**found})
        if arguments.kept is not None:
            with arguments.kept.open("a") as file:
                file.write(json.dumps(found) + "\n")
    report = Report(own_loop_ratio(4 if quick else 16), list(rows_of([known[cell] for cell in cells])))
    report.figures |= figures_of(report.rows, [known[cell] for cell in cells])
    seconds = 30.0 if quick else 90.0
    calm, disturbed = others_pace(1, seconds, False), others_pace(1, seconds, True)
    report.figures["others_slowdown"] = 1 - disturbed / calm
    return report


def rows_of(results: Sequence[Figures]) -> Iterator[Row]:
    """One row for each suite and arm."""
    by: dict[tuple[Any, Any], dict[Any, Figures]] = {}
    for one in results:
        by.setdefault((one["suite"], one["arm"]), {})[one["seed"]] = one
    for (suite, arm), found in by.items():
        own = by[suite, "own"]
        gains, ratios = ([float(one[name]) / float(own[seed][name]) for seed, one in found.items()]
                         for name in ("area", "steps_to_target"))  # fmt: skip
        asked = total(found.values(), "asked")
        yield {
            "suite": suite, "arm": arm, "seeds": len(found), "area": total(found.values(), "area") / len(found),
            "gain": mean(gains), "gain_sd": stdev(gains) if len(gains) > 1 else None,
            "better_seeds": sum(gain > 1 for gain in gains), "steps_to_target_ratio": mean(ratios),
            "values_in_time": total(found.values(), "in_time") / asked if asked else None,
            "kb_per_1000_steps": total(found.values(), "kb_per_1000_steps") / len(found),
            "switched_off": int(total(found.values(), "switched_off")),
        }  # fmt: skip


def total(found: Iterable[Figures], name: str) -> float:
    return sum(float(one[name]) for one in found)


def figures_of(rows: Sequence[Row], results: Sequence[Figures]) -> Figures:
    """The named figures: means of the suites with one problem, and the others for each way of sharing."""
    by = {(str(row["suite"]), str(row["arm"])): row for row in rows}
    figures: Figures = {"default_arm": DEFAULT_ARM}
    for arm in (arm for arm in ARMS if arm != "own"):
        for name, figure in (("gain", f"gain_{arm}"), ("steps_to_target_ratio", f"steps_to_target_ratio_{arm}")):
            if found := [float(by[suite, arm][name] or 0.0) for suite in ALIKE if (suite, arm) in by]:
                figures[figure] = mean(found)
        for suite in SUITES:
            if (suite, arm) in by:
                figures[f"gain_{suite}_{arm}"] = float(by[suite, arm]["gain"] or 0.0)
    for name, figure in (
        ("gain_mixed", f"gain_mixed_{DEFAULT_ARM}"),
        ("gain_heldout", f"gain_heldout_{DEFAULT_ARM}"),
        ("steps_to_target_ratio", f"steps_to_target_ratio_{DEFAULT_ARM}"),
    ):
        if figure in figures:
            figures[name] = figures[figure]
    queue = [one for one in results if ARMS[str(one["arm"])]["mode"] == "queue"]
    default = [one for one in results if one["arm"] == DEFAULT_ARM]
    if queue:
        figures["values_in_time"] = total(queue, "in_time") / max(1.0, total(queue, "asked"))
    if default:
        figures["kb_per_1000_steps"] = total(default, "kb_per_1000_steps") / len(default)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=numbers)
    parser.add_argument("--suites", type=words, help=", ".join(SUITES))
    parser.add_argument("--arms", type=words, help=f"{', '.join(ARMS)}; own is needed as the baseline")
    parser.add_argument("--kept", type=Path, help="a file that keeps the runs that are finished")
    parser.add_argument("--processes", type=int, default=2)
    run("actors", measure, parser)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
