"""Four laptops with policies of their own: what is a shared critic worth, and what do shared rollouts add?

    python -m benchmarks.actors --json [--quick] [--seeds 1,2] [--suites cartpole,acrobot,mixed]

Four simulated nodes learn variants of CartPole, of Acrobot, and two of each (`mixed`). In the baseline `own`, with the
same seeds in the same run, each has a critic of its own. `gain_…` is the area under the mean return of the latest 20
episodes (for Acrobot above its floor of −500), relative to `own`; `steps_to_target_ratio` are the steps until a target
return, relative to `own`. `others_slowdown` is what the others lose when the critic's owner dies and one environment
raises. `env_steps_per_s_vs_cleanrl` compares one laptop alone, by processor time, with a loop as CleanRL's ppo.py.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from math import inf
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from torch import nn

import p2pnode
from benchmarks.actors_cleanrl import cleanrl_steps
from benchmarks.actors_envs import Acrobots, CartPoles, NumpyEnvs
from benchmarks.common import Figures, Report, Row, numbers, progress_row, run, words
from p2pnode.config.options import JobOptions
from p2pnode.jobs.actors.critic import Critic, first_weights
from p2pnode.jobs.actors.job import ActorsJob
from p2pnode.jobs.actors.learner import PolicyLearner
from p2pnode.jobs.actors.plan import ActorsPlan, ActorsSettings
from p2pnode.network.sim import Links
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread

CARTPOLE: tuple[dict[str, float], ...] = ({"pole": 0.25}, {"pole": 1.0}, {"gravity": 20.0}, {"force": 5.0})
ACROBOT: tuple[dict[str, float], ...] = ({}, {"length": 1.3}, {"mass": 1.3}, {"torque": 0.8})
ARMS: dict[str, dict[str, Any]] = {
    "own": {"mode": "own", "share": False},
    "queue": {"mode": "queue", "share": False},
    "replicas": {"mode": "replicas", "share": False},
    "shared_rollouts": {"mode": "queue", "share": True},
}
SUITES = ("cartpole", "acrobot", "mixed")
TARGETS, FLOORS = {4: 195.0, 6: -200.0}, {4: 0.0, 6: -500.0}  # by the width of observations
ROLLOUT, RECENT = 512, 20
LINKS = Links(latency=0.02, rate=2.5e6)  # 20 Mbit/s


class Variant(p2pnode.PolicyTask):
    """One laptop of a suite. Keeps its environments, which know their episodes."""

    def __init__(self, suite: str, number: int, raises_after: int = 0) -> None:
        cart = suite == "cartpole" or (suite == "mixed" and number < 2)
        self._make: Any = CartPoles if cart else Acrobots
        self._given = (CARTPOLE if cart else ACROBOT)[number if suite != "mixed" else number % 2]
        self._raises_after = raises_after
        self.made: list[NumpyEnvs] = []

    def env(self) -> NumpyEnvs:
        envs: NumpyEnvs = self._make(self.envs, **self._given)
        envs.raises_after = self._raises_after
        self.made.append(envs)
        return envs

    def policy(self) -> nn.Module:
        width, actions = (4, 2) if self._make is CartPoles else (6, 3)
        layers = [nn.Linear(width, 64), nn.Linear(64, 64), nn.Linear(64, actions)]
        for layer in layers:
            nn.init.orthogonal_(layer.weight, 2**0.5 if layer is not layers[-1] else 0.01)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])

    def curve(self, steps: int) -> np.ndarray[Any, Any]:
        """The mean return of the latest 20 episodes above the floor, after each rollout."""
        episodes = [one for envs in self.made for one in envs.episodes]
        floor, found = FLOORS[self.made[0].width], []
        for at in range(ROLLOUT, steps + 1, ROLLOUT):
            known = [reward for step, reward in episodes if step <= at][-RECENT:]
            found.append((mean(known) if known else floor) - floor)
        return np.array(found)

    def steps_to_target(self, steps: int) -> int:
        """Steps until the return has reached its target; all of them where it never did."""
        width = self.made[0].width
        above = np.flatnonzero(self.curve(steps) >= TARGETS[width] - FLOORS[width])
        return int((above[0] + 1) * ROLLOUT if len(above) else steps)


def scenario(tasks: Sequence[Variant], seed: int, **given: Any) -> Scenario:
    job = JobOptions("critic", "actors", {"tasks": list(tasks), "rollout": ROLLOUT, **given})
    training = SimTraining(SIMULATED, rounds=10**6, jobs=(job,))
    return Scenario(len(tasks), seed=seed, seconds=inf, links=LINKS, spread=0.5, sample_every=0.0, training=training)


def learn(suite: str, arm: str, seed: int, iterations: int) -> tuple[list[Variant], Figures]:
    """One run of four laptops: their tasks, and what it took."""
    tasks = [Variant(suite, number) for number in range(4)]

    async def main() -> Figures:
        simulation = Simulation(scenario(tasks, seed, **ARMS[arm]))
        await simulation.start()
        assert simulation.watch is not None
        while not (jobs := jobs_of(simulation)) or min(job.iterations for job in jobs) < iterations or len(jobs) < 4:
            await simulation.learn(simulation.watch, 2.0)
        sent = sum(process.node.status().traffic.sent_bytes for process in simulation.processes.values())
        asked, in_time = sum(job.asked for job in jobs), sum(job.in_time for job in jobs)
        pooled = [job.learner for job in jobs if job.learner is not None and job.settings.mode != "own"]
        unused = [learner for learner in pooled if not learner.trust.shared]
        steps = sum(job.learner.steps for job in jobs if job.learner is not None)
        await simulation.finish()
        return {
            "kb_per_1000_steps": sent / max(1, steps), "asked": asked, "in_time": in_time, "switched_off": len(unused),
        }  # fmt: skip

    with one_thread():
        return tasks, run_sim(main())


def jobs_of(simulation: Simulation) -> list[ActorsJob]:
    found = (process.node.jobs.jobs.get("critic") for _, process in sorted(simulation.processes.items()))
    return [job for job in found if isinstance(job, ActorsJob)]


def others_pace(seed: int, seconds: float, disturbed: bool) -> float:
    """Steps that laptops 1 and 2 make in some virtual time, while the owner dies and laptop 3 raises, or not."""
    tasks = [Variant("cartpole", number, raises_after=5 * ROLLOUT * (disturbed and number == 3)) for number in range(4)]

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


def measure(arguments: argparse.Namespace) -> Report:
    quick = arguments.quick
    seeds = arguments.seeds or ([1] if quick else list(range(1, 11)))
    suites = arguments.suites or (["cartpole"] if quick else list(SUITES))
    iterations = {"cartpole": 12 if quick else 30, "acrobot": 40, "mixed": 40}
    report = Report(own_loop_ratio(4 if quick else 16))
    results: dict[tuple[str, str], list[tuple[float, float, Figures]]] = {}
    for suite in suites:
        steps = iterations[suite] * ROLLOUT
        for seed in seeds:
            for arm in arguments.arms or ARMS:
                tasks, took = learn(suite, arm, seed, iterations[suite])
                area = mean(float(task.curve(steps).mean()) for task in tasks)  # of 500 at most, in all suites
                target = mean(task.steps_to_target(steps) for task in tasks)
                results.setdefault((suite, arm), []).append((area, target, took))
                progress_row(
                    {"suite": suite, "seed": seed, "arm": arm, "area": area, "steps_to_target": target, **took}
                )
        for arm in [arm for _, arm in results if _ == suite]:
            report.rows.append(_row(suite, arm, results))
            progress_row(report.rows[-1])
    report.figures |= _figures(report.rows, results)
    seconds = 30.0 if quick else 90.0
    calm, disturbed = others_pace(1, seconds, False), others_pace(1, seconds, True)
    report.figures["others_slowdown"] = 1 - disturbed / calm
    return report


def _row(suite: str, arm: str, results: dict[tuple[str, str], list[tuple[float, float, Figures]]]) -> Row:
    own, found = results[suite, "own"], results[suite, arm]
    gains = [one[0] / other[0] for one, other in zip(found, own, strict=True)]
    ratios = [one[1] / other[1] for one, other in zip(found, own, strict=True)]
    asked, in_time = sum(int(one[2]["asked"]) for one in found), sum(int(one[2]["in_time"]) for one in found)
    return {
        "suite": suite, "arm": arm, "seeds": len(found), "area": mean(one[0] for one in found), "gain": mean(gains),
        "gain_sd": stdev(gains) if len(gains) > 1 else None, "better_seeds": sum(gain > 1 for gain in gains),
        "steps_to_target_ratio": mean(ratios), "values_in_time": in_time / asked if asked else None,
        "kb_per_1000_steps": mean(float(one[2]["kb_per_1000_steps"]) for one in found),
        "switched_off": sum(int(one[2]["switched_off"]) for one in found),
    }  # fmt: skip


def _figures(rows: Sequence[Row], results: dict[tuple[str, str], list[tuple[float, float, Figures]]]) -> Figures:
    """The named figures: gains over the suites of one kind, and those of the default mode."""
    by = {(row["suite"], row["arm"]): row for row in rows}
    alike = [suite for suite in ("cartpole", "acrobot") if (suite, "own") in by]
    figures: Figures = {"default_arm": DEFAULT_ARM}
    for arm in ("queue", "replicas", "shared_rollouts"):
        gains = [float(by[suite, arm]["gain"] or 0.0) for suite in alike if (suite, arm) in by]
        if gains:
            figures[f"gain_{arm}"] = mean(gains)
    for suite in alike:
        if (suite, DEFAULT_ARM) in by:
            figures[f"gain_{suite}"] = float(by[suite, DEFAULT_ARM]["gain"] or 0.0)
            figures[f"steps_to_target_ratio_{suite}"] = float(by[suite, DEFAULT_ARM]["steps_to_target_ratio"] or 0.0)
    ratios = [value for name, value in figures.items() if name.startswith("steps_to_target_ratio_")]
    if ratios:
        figures["steps_to_target_ratio"] = mean(float(ratio) for ratio in ratios)
    if ("mixed", DEFAULT_ARM) in by:
        figures["gain_mixed"] = float(by["mixed", DEFAULT_ARM]["gain"] or 0.0)
    queue = [one[2] for (_, arm), found in results.items() if ARMS[arm]["mode"] == "queue" for one in found]
    if queue:
        figures["values_in_time"] = sum(int(one["in_time"]) for one in queue) / max(
            1, sum(int(one["asked"]) for one in queue)
        )
    default = [
        float(one[2]["kb_per_1000_steps"]) for (_, arm), found in results.items() if arm == DEFAULT_ARM for one in found
    ]
    if default:
        figures["kb_per_1000_steps"] = mean(default)
    return figures


DEFAULT_ARM = "queue"  # what p2pnode/jobs/actors/plan.py has as its defaults


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=numbers)
    parser.add_argument("--suites", type=words)
    parser.add_argument("--arms", type=words, help="own is needed as the baseline")
    run("actors", measure, parser)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
