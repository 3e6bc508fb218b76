"""Paths through one model (DiPaCo), compared with one model, with separate models, and with one of the total size.

    python -m benchmarks.paths --json [--quick] [--mixtures a,b] [--seeds 0,1,2] [--steps 1000] [--long 3000]
        [--share ends]

Four simulated nodes train 2x2 paths of a small byte transformer, one path each. Every worker of every arm does the same
number of steps on equal batches, with the same planned schedule; nodes exchange behind 20 Mbit/s links. Losses are nats
per byte of held-out windows, after the first 32 bytes, by which honest routing goes. Mixture `a` was used for choosing
what is shared, `b` never was (language_texts.py).

Baselines of the same run: `one` is one model of the active size by the default policy; `apart` are four models on the
same documents that share nothing; `total` is one model with about as many parameters as all blocks together, trained
for the same time: four times the work in a step, so a quarter of the steps.

`loss_paths` routes by whole documents, `loss_prefix` by the beginning. `loss_top2` and `loss_all` mix paths by the
beginning and by what was seen so far; `loss_top2_router` by the beginning alone. `gain_vs_one_nats` and
`gain_vs_apart_nats` compare routing by documents, `gain_vs_one_honest_nats` compares the mixture of two.
`gain_vs_apart_long_nats` is that of the longer run. `blocks_equal` is the share of blocks that are bit-equal at all who
train them, after a rest, in a swarm of eight.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch

from benchmarks.common import Figures, Report, Row, numbers, progress, run, words
from benchmarks.language_texts import MIXTURES, write_mixture
from p2pnode.compression.weights import Floats
from p2pnode.config.options import JobOptions
from p2pnode.config.until import Until
from p2pnode.jobs.paths.mixing import best, mixed_losses
from p2pnode.jobs.paths.setup import PathsSetup
from p2pnode.jobs.paths.work import PathWork
from p2pnode.jobs.train.job import TrainJob
from p2pnode.merging.schedule import planned_rate
from p2pnode.network.sim import Links
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer

NODES, PREFIX, RATE, LATENCY = 4, 32, 2.5e6, 0.05
ACTIVE: dict[str, Any] = {"size": "nano", "width": 64, "layers": 2, "context": 96}
TOTAL = {**ACTIVE, "width": 128, "heads": 4}  # four times the weights in its layers
COST = 4  # of a step of the large model
QUICK = {"size": "nano", "width": 32, "layers": 2, "context": 64}


def swarm(folder: Path, model: dict[str, Any], steps: int, seed: int, job: JobOptions | None, nodes: int) -> Scenario:
    options = replace(SIMULATED, task="gpt", data=folder, task_options=model, until=Until("steps", steps))
    training = SimTraining(options, rounds=10**6, jobs=() if job is None else (job,))
    links = Links(latency=LATENCY, rate=RATE)
    return Scenario(
        nodes, seed=seed, seconds=10.0 * steps, links=links, spread=0.5, sample_every=0.0, training=training
    )


def trained(scenario: Scenario) -> tuple[list[Any], float]:
    """The jobs of all nodes after their planned steps, and the megabytes that a node sent."""

    async def main() -> tuple[list[Any], float]:
        simulation, jobs = Simulation(scenario), dict[int, Any]()
        await simulation.start()
        watch = simulation.watch
        assert watch is not None
        going = True
        while going:
            await simulation.learn(watch, 1.0)
            for index, process in simulation.processes.items():
                for job in process.node.jobs.jobs.values():
                    jobs[index] = job
            ended = [index for index in jobs if not _goes_on(simulation, index)]
            going = len(ended) < scenario.peers and not watch.finished
        sent = mean(simulation.swarm.hosts[index].sent_bytes for index in range(scenario.peers)) / 1e6
        await simulation.finish()
        return [jobs[index] for index in sorted(jobs)], sent

    with one_thread():
        return run_sim(main())


def _goes_on(simulation: Simulation, index: int) -> bool:
    process = simulation.processes.get(index)
    return process is not None and not process.node.jobs.ended


def jobs_of(simulation: Simulation) -> list[Any]:
    return [job for _, process in sorted(simulation.processes.items()) for job in process.node.jobs.jobs.values()]


def piece_losses(host: ModelHost, weights: Floats) -> Floats:
    """The loss of each byte of each test window."""
    found, test = [], host.test.rows(torch.arange(len(host.test)))
    with host.lock, torch.no_grad():
        host.put(weights)
        host.model.eval()
        for start in range(0, len(host.test), 64):
            batch = {name: column[start : start + 64] for name, column in test.items()}
            found.append(host.task.piece_losses(host.model, batch).float().numpy())
    return np.concatenate(found)


def after_prefix(losses: Floats) -> float:
    return float(losses[:, PREFIX:].mean())


def paths_arm(folder: Path, model: dict[str, Any], steps: int, seed: int, share: str) -> tuple[Figures, PathsSetup]:
    """Losses of the paths in every way of routing, bytes, and what the other arms need."""
    job = JobOptions("text", "paths", {"paths": "2x2", "share": share, "prefix": PREFIX})

    jobs, sent = trained(swarm(folder, model, steps, seed, job, NODES))
    setup: PathsSetup = jobs[0].setup
    done: dict[int, PathWork] = {}
    for work in (work for one in jobs for work in one.works.values()):
        if work.path not in done or work.trainer.steps_done > done[work.path].trainer.steps_done:
            done[work.path] = work
    losses = np.stack([piece_losses(setup.host, done[path].joined.readout()) for path in sorted(done)])
    return {**routed_figures(losses, setup), "mb_per_node": sent}, setup


def routed_figures(losses: Floats, setup: PathsSetup) -> Figures:
    """The losses of all ways of routing, from those of the paths (paths, windows, bytes)."""
    test, every = setup.test, np.arange(losses.shape[1])
    priors = test.beginnings
    return {
        "loss_paths": after_prefix(losses[test.paths, every]),
        "loss_prefix": after_prefix(losses[test.by_beginning, every]),
        "loss_top2": after_prefix(mixed_losses(losses, best(priors, 2))),
        "loss_top2_router": after_prefix(mixed_losses(losses, best(priors, 2), evidence=False)),
        "loss_all": after_prefix(mixed_losses(losses, priors)),
        "right_by_beginning": float((test.by_beginning == test.paths).mean()),
    }


def apart_arm(setup: PathsSetup, steps: int, seed: int) -> Figures:
    """Four models that share nothing, each on the documents of one path."""
    found = []
    for path in range(setup.plan.grid.paths):
        trainer = Trainer(setup.host, np.flatnonzero(setup.train.paths == path), 1000 * seed + path)
        weights = setup.genesis
        while trainer.steps_done < steps:
            weights = trainer.steps(weights, 10, rate=planned_rate(trainer.steps_done, steps)).weights
        found.append(piece_losses(setup.host, weights))
    figures = routed_figures(np.stack(found), setup)
    return {f"apart_{name}": value for name, value in figures.items() if name.startswith("loss")}


def one_arm(folder: Path, model: dict[str, Any], steps: int, seed: int) -> tuple[float, float, int]:
    """Loss of one model that all nodes train by the default policy, its bytes, and its size."""

    jobs, sent = trained(swarm(folder, model, steps, seed, None, NODES))
    job: TrainJob = jobs[0]
    return after_prefix(piece_losses(job.model_host, job.policy.readout())), sent, job.model_host.layout.size


def blocks_equal(folder: Path, model: dict[str, Any], seed: int) -> float:
    """The share of shared blocks that are bit-equal at all who train them, in a swarm of eight after a rest."""
    job = JobOptions("text", "paths", {"paths": "2x2", "share": "options"})

    async def main() -> float:
        simulation = Simulation(swarm(folder, {**model, "width": 16, "context": 32}, 10**6, seed, job, 8))
        await simulation.start()
        assert simulation.watch is not None
        await simulation.learn(simulation.watch, 30.0)
        simulation.rest()
        await simulation.learn(simulation.watch, 30.0)
        holders: dict[str, set[bytes]] = {}
        for one in jobs_of(simulation):
            for path in one.works:
                for block in one.grid.blocks(path):
                    holders.setdefault(block, set()).add(one.held.open[block].policy.weights().tobytes())
        await simulation.finish()
        return sum(len(found) == 1 for found in holders.values()) / len(holders)

    with one_thread():
        return run_sim(main())


def measured(mixture: str, seed: int, model: dict[str, Any], steps: int, arguments: argparse.Namespace) -> Row:
    """All arms on one mixture with one seed."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_mixture(mixture, folder)
        row: Row = {"mixture": mixture, "seed": seed, "steps": steps}
        ours, setup = paths_arm(folder, model, steps, seed, arguments.share)
        row |= ours
        progress(f"{mixture} {seed}: paths {ours}")
        row |= apart_arm(setup, steps, seed)
        progress(f"{mixture} {seed}: apart {row['apart_loss_paths']}")
        if steps == arguments.long:
            return row
        row["loss_one"], row["one_mb_per_node"], row["parameters_active"] = one_arm(folder, model, steps, seed)
        large = {**model, "width": 2 * model["width"], "heads": 4}
        row["loss_total"], _, row["parameters_total_model"] = one_arm(folder, large, max(10, steps // COST), seed)
        parts = setup.parts
        row["parameters_paths"] = parts.ends.size + setup.plan.grid.paths * sum(one.size for one in parts.levels)
        progress(f"{mixture} {seed}: one {row['loss_one']}, total {row['loss_total']}")
        return row


def measure(arguments: argparse.Namespace) -> Report:
    quick = arguments.quick
    model, steps = (QUICK, 100) if quick else (ACTIVE, arguments.steps)
    mixtures, seeds = (arguments.mixtures[-1:], arguments.seeds[:1]) if quick else (arguments.mixtures, arguments.seeds)
    rows = [measured(mixture, seed, model, steps, arguments) for seed in seeds for mixture in mixtures]
    long = [] if quick or not arguments.long else [measured(mixtures[0], seeds[0], model, arguments.long, arguments)]
    with tempfile.TemporaryDirectory() as place:
        write_mixture(mixtures[0], Path(place))
        equal = blocks_equal(Path(place), model, seeds[0])

    def average(name: str, of: list[Row] = rows) -> float:
        return mean(float(row[name]) for row in of)  # type: ignore[arg-type]

    names = ("loss_paths", "loss_prefix", "loss_top2", "loss_top2_router", "loss_all", "loss_one", "loss_total",
             "apart_loss_paths", "apart_loss_top2", "right_by_beginning", "mb_per_node", "one_mb_per_node")  # fmt: skip
    figures: Figures = {name: average(name) for name in names}
    figures |= {
        "gain_vs_one_nats": average("loss_one") - average("loss_paths"),
        "gain_vs_one_honest_nats": average("loss_one") - average("loss_top2"),
        "gain_vs_apart_nats": average("apart_loss_paths") - average("loss_paths"),
        "vs_total_size_nats": average("loss_total") - average("loss_paths"),
        "top2_gain_nats": average("loss_prefix") - average("loss_top2"),
        "blocks_equal": equal,
    }
    for mixture in mixtures if len(mixtures) > 1 else ():
        own = [row for row in rows if row["mixture"] == mixture]
        figures[f"gain_vs_one_nats_{mixture}"] = average("loss_one", own) - average("loss_paths", own)
        figures[f"gain_vs_apart_nats_{mixture}"] = average("apart_loss_paths", own) - average("loss_paths", own)
    if long:
        figures["gain_vs_apart_long_nats"] = average("apart_loss_paths", long) - average("loss_paths", long)
    return Report(figures, [*rows, *long])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixtures", type=words, default=list(MIXTURES), help="texts to learn")
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=1000, help="local steps of each worker")
    parser.add_argument("--long", type=int, default=3000, help="steps of one longer run; 0: none")
    parser.add_argument("--share", default="ends", help="what paths share")
    run("paths", measure, parser)


if __name__ == "__main__":
    main()
