"""Several models trained by one swarm: how long until all reach their targets, with queues and without.

    python -m benchmarks.queues --json [--quick] [--seeds 1,2]

Simulated nodes of different speeds behind 20 Mbit/s links; a local step takes a node equally long for every model.
`seconds_to_all` is virtual time until every model has reached its target accuracy, looked at every second, by the
running mean of its weights. Our nodes know the targets and leave out models that have reached theirs. Baselines of the
same run, with the same machines: `round_robin` (the models take turns, each queue has a fixed owner; no targets),
`round_robin_with_targets` (the same, leaving out models at their targets), `single_queue` (one queue for all models:
one owner, items in the order in which they came), `apart` (each model in a run of its own, with its share of the
machines, by the default policy). Figures are medians over seeds, speedups ratios of these.

`takeover_s` is the time from an owner's death until its queues are applied again. `items_lost`, `items_twice` and
`heads` (different logs of one queue; 1 is right) are counted after deaths, a split and a quiet time;
`fenced_counted` is the number of chains with work of two owners in one term, among `states` of the model checker.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchmarks.common import Figures, Report, Row, need_fashion_mnist, numbers, progress, run
from p2pnode.config.options import JobOptions, Options
from p2pnode.jobs.queues.job import QueuesJob
from p2pnode.network.sim import Fault, Links
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from tests.jobs.queues.lease_checker import Checker, Scope

NODES, RATE, LATENCY, SPEEDS = 8, 2.5e6, 0.05, (1.0, 4.0)  # 20 Mbit/s
LOOK_EVERY = 1.0  # virtual seconds
LIMIT = 600.0  # virtual seconds after which a scheme that has not reached all targets is stopped
SAY_EVERY = 60.0
Models = Mapping[str, dict[str, Any]]
FULL: Models = {
    "small": {"task": "digits", "hidden": 16},
    "wide": {"task": "digits", "hidden": 256},
    "clothes": {"task": "fashion-mnist"},
}
QUICK: Models = {name: FULL[name] for name in ("small", "wide")}
TARGETS = {"small": 0.92, "wide": 0.955, "clothes": 0.84}
SEEDS = [1, 2, 3]  # settings were chosen with seed 1; seed 3 is held back


@dataclass(frozen=True)
class SameMachines(SimTraining):
    """Training on some of the machines of a larger swarm: those from number `first` on."""

    first: int = 0

    def speed_of(self, seed: int, index: int) -> float:
        return super().speed_of(seed, self.first + index)


def with_targets(models: Models) -> Models:
    """The same models; each is trained until it has reached its target."""
    return {name: {**model, "until": f"accuracy:{TARGETS[name]}"} for name, model in models.items()}


def scenario(models: Models, seed: int, nodes: int, faults: tuple[Fault, ...] = (), **given: Any) -> Scenario:
    job = JobOptions("zoo", "queues", {"models": models, **given})
    training = SimTraining(replace(SIMULATED, task="digits"), rounds=10**6, speeds=SPEEDS, jobs=(job,))
    links = Links(latency=LATENCY, rate=RATE)
    return Scenario(nodes, seed=seed, seconds=LIMIT, links=links, faults=faults, sample_every=0.0, training=training)


def fixed_owners(models: Models) -> Callable[[Options, int, int], Options]:
    """Each queue belongs to another node, for good."""

    def adjust(options: Options, index: int, starts: int) -> Options:
        name = list(models)[index % len(models)] if index < len(models) else ""
        jobs = tuple(replace(job, given={**job.given, "prefer_owner": name}) for job in options.jobs)
        return replace(options, jobs=jobs) if name else options

    return adjust


def jobs_of(simulation: Simulation) -> list[QueuesJob]:
    found = (process.node.jobs.jobs.get("zoo") for _, process in sorted(simulation.processes.items()))
    return [job for job in found if isinstance(job, QueuesJob)]


def seconds_to_all(plan: Scenario, models: Models) -> tuple[float, Figures]:
    """Virtual seconds until all models have reached their targets, and what it took."""

    async def main() -> tuple[float, Figures]:
        simulation = Simulation(plan)
        await simulation.start()
        assert simulation.watch is not None
        reached: dict[str, float] = {}
        accuracies: dict[str, float] = {}
        now = 0.0
        while now < LIMIT and len(reached) < len(models):
            await simulation.learn(simulation.watch, LOOK_EVERY)
            now += LOOK_EVERY
            for name, model in jobs_of(simulation)[0].models.items() if jobs_of(simulation) else ():
                if name not in reached and model.log.items:
                    accuracies[name] = model.evaluate(model.shared()).accuracy or 0.0
                    if accuracies[name] >= TARGETS[name]:
                        reached[name] = now
            if now % SAY_EVERY == 0.0:
                progress(f"{now:.0f} s: reached {reached}, accuracies {accuracies}")
        cost = costs(simulation)
        await simulation.finish()
        return (now if len(reached) == len(models) else float("inf")), {**cost, **reached}

    with one_thread():
        return run_sim(main())


def costs(simulation: Simulation) -> Figures:
    statuses = [process.node.status() for process in simulation.processes.values()]
    models = jobs_of(simulation)[0].models.values()
    sent = sum(status.traffic.sent_bytes for status in statuses)
    dense = sum(2 * 4.0 * len(model.log.weights) * model.log.items for model in models)  # each item up and down, whole
    idle = sum(status.compute_idle or 0.0 for status in statuses) / len(statuses)
    return {
        "mb_per_node": sent / len(statuses) / 1e6,
        "bytes_ratio_dense": dense / max(1.0, sent),
        "idle_share": idle,
    }


def seconds_apart(models: Models, seed: int, nodes: int) -> float:
    """Virtual seconds until the last of several separate runs, with the same machines, has reached its target."""
    shares = [nodes // len(models) + (place < nodes % len(models)) for place in range(len(models))]
    firsts = [sum(shares[:place]) for place in range(len(models))]
    return max(
        _alone(name, models[name], share, first, seed)
        for name, share, first in zip(models, shares, firsts, strict=True)
    )


def _alone(name: str, model: dict[str, Any], nodes: int, first: int, seed: int) -> float:
    given = {"task": model["task"], "task_options": {key: value for key, value in model.items() if key != "task"}}
    training = SameMachines(replace(SIMULATED, **given), rounds=10**6, speeds=SPEEDS, first=first)
    plan = Scenario(nodes, seed, LIMIT, Links(latency=LATENCY, rate=RATE), sample_every=0.0, training=training)

    async def main() -> float:
        simulation = Simulation(plan)
        await simulation.start()
        assert simulation.watch is not None
        now = 0.0
        while now < LIMIT:
            await simulation.learn(simulation.watch, LOOK_EVERY)
            now += LOOK_EVERY
            job = simulation.processes[0].node.jobs.jobs.get("main")
            if job is not None and job.model is not None and (job.model.evaluate().accuracy or 0.0) >= TARGETS[name]:
                await simulation.finish()
                return now
        await simulation.finish()
        return float("inf")

    with one_thread():
        return run_sim(main())


def faults(models: Models, seed: int) -> Figures:
    """Deaths and a split: what was lost, counted twice or undecided, and how long a queue stood still."""
    death, split = Fault(60.0, "crash", (0,), seconds=200.0), Fault(200.0, "split", (1, 2), seconds=90.0)

    async def main() -> Figures:
        simulation = Simulation(scenario(models, seed, 6, (death, split), reallocate=1000.0))
        await simulation.start()
        assert simulation.watch is not None
        await simulation.learn(simulation.watch, 59.0)
        before, stopped = sum(model.log.items for model in jobs_of(simulation)[0].models.values()), 59.0
        while stopped < 190.0:
            await simulation.learn(simulation.watch, 1.0)
            stopped += 1.0
            if stopped > 61.0 and _new_owner_works(jobs_of(simulation)):
                break
        await simulation.learn(simulation.watch, 420.0 - stopped)
        simulation.rest()
        await simulation.learn(simulation.watch, 90.0)
        jobs = jobs_of(simulation)
        lost, twice, heads = 0, 0, []
        for name in models:
            for job in jobs:
                log, outbox = job.models[name].log, job.models[name].outbox
                lost += outbox.next_seq - 1 - log.applied.get(job.context.services.identity.peer_id, 0)
                items = [item for done in log._done for item in done.step.items]
                twice += len(items) - len(set(items))
            heads.append(len({(job.models[name].log.head, job.models[name].log.weights.tobytes()) for job in jobs}))
        await simulation.finish()
        assert before > 0
        return {"takeover_s": stopped - 60.0, "items_lost": lost, "items_twice": twice, "heads": max(heads)}

    with one_thread():
        return run_sim(main())


def _new_owner_works(jobs: Sequence[QueuesJob]) -> bool:
    """Whether every queue has a living owner that has made a step in its term."""
    alive = {job.context.services.identity.peer_id for job in jobs}
    follower = jobs[-1]
    return all(
        model.owner in alive and model.watch.lease is not None and model.log.term == model.watch.lease.term
        for model in follower.models.values()
    )


def in_turns(models: Models, seed: int, nodes: int) -> Scenario:
    """Round robin: the models take turns, and each queue has a fixed owner."""
    return replace(scenario(models, seed, nodes, priority=False, reallocate=5.0), adjust=fixed_owners(models))


def compared(models: Models, seed: int, nodes: int) -> Row:
    """One seed: ours and all baselines."""
    ours, cost = seconds_to_all(scenario(with_targets(models), seed, nodes), models)
    progress(f"seed {seed}: all at their targets after {ours} s, by priority ({cost})")
    turns, _ = seconds_to_all(in_turns(models, seed, nodes), models)
    progress(f"seed {seed}: {turns} s in turns")
    aimed, _ = seconds_to_all(in_turns(with_targets(models), seed, nodes), models)
    progress(f"seed {seed}: {aimed} s in turns that leave out models at their targets")
    single, _ = seconds_to_all(scenario(models, seed, nodes, priority=False, fixed=True, common=True), models)
    progress(f"seed {seed}: {single} s with one queue for all")
    apart = seconds_apart(models, seed, nodes)
    progress(f"seed {seed}: {apart} s apart")
    kept = {name: cost[name] for name in ("mb_per_node", "bytes_ratio_dense", "idle_share")}
    return {
        "seed": seed,
        "seconds_to_all": ours,
        "round_robin_s": turns,
        "round_robin_with_targets_s": aimed,
        "single_queue_s": single,
        "apart_s": apart,
        **kept,
    }


def measure(arguments: argparse.Namespace) -> Report:
    if not arguments.quick:
        need_fashion_mnist()
    models, seeds = (QUICK, arguments.seeds[:1]) if arguments.quick else (FULL, arguments.seeds)
    rows = [compared(models, seed, 4 if arguments.quick else NODES) for seed in seeds]
    scope = Scope(2, 2, 4, 1, 5_000) if arguments.quick else Scope(3, 2, 5, 2, 1_000_000)
    report = Checker(scope).run()
    progress(f"model checker: {report.states} states")
    found = faults(QUICK, seeds[0])

    def middle(name: str) -> float:
        return median(float(row[name]) for row in rows)  # type: ignore[arg-type]

    figures: Figures = {
        "seconds_to_all": middle("seconds_to_all"),
        "round_robin_s": middle("round_robin_s"),
        "round_robin_with_targets_s": middle("round_robin_with_targets_s"),
        "single_queue_s": middle("single_queue_s"),
        "apart_s": middle("apart_s"),
        "speedup_vs_round_robin": middle("round_robin_s") / middle("seconds_to_all"),
        "speedup_vs_single_queue": middle("single_queue_s") / middle("seconds_to_all"),
        "speedup_vs_apart": middle("apart_s") / middle("seconds_to_all"),
        "bytes_ratio_dense": middle("bytes_ratio_dense"),
        "idle_share": middle("idle_share"),
        **found,
        "states": report.states,
        "fenced_counted": report.fenced_counted,
        "checker_items_twice": report.items_twice,
        "checker_unequal": report.unequal,
    }
    return Report(figures, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=numbers, default=SEEDS, help="seeds of the simulations")
    run("queues", measure, parser)


if __name__ == "__main__":
    main()
