"""A model divided among machines: how near to the sum of their speeds, and what deaths cost.

    python -m benchmarks.pipeline --json [--quick] [--seeds 1,2]

Simulated nodes in virtual time; the model computes for real. The ideal is the sum of the servers' declared speeds, with
the second forward pass that a pipeline computes counted as work (4/3 of a step); what the driver computes at the ends
is free. `of_ideal`: six equal servers of two of six blocks, with fast links and with 20 ms and 100 Mbit/s.
`of_ideal_after_death`: the rest, 10 s after one of them died; `recover_s`: until the pace is 0.85 of what they can.
`vs_fixed_chain`: servers of speeds 1 to 4, against two chains of the same servers that stay as they are;
`vs_round_robin`: against servers that are asked in turn. `microbatches_lost`, `counted_twice`: with a death every few
seconds. `loss_gap_vs_one_machine`: test loss in nats, after as many samples as one machine trained on by itself.
`vs_whole_model`: samples a second against a whole model on each machine, if it would fit and its links cost nothing.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common import Figures, Report, Row, numbers, progress, run
from p2pnode.config.options import JobOptions, Options
from p2pnode.jobs.pipeline.job import PipelineJob
from p2pnode.jobs.pipeline.local_blocks import ENDS
from p2pnode.jobs.pipeline.routing import Hop, SpanRouter
from p2pnode.jobs.pipeline.server import SpanServer
from p2pnode.network.sim import Fault, Links
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.tasks.find import load_task
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer

MODEL: dict[str, Any] = {"width": 16, "layers": 6, "heads": 2, "context": 16, "batch_size": 16}
FAST, SHAPED = Links(latency=0.0005, rate=1.25e8), Links(latency=0.02, rate=1.25e7)
MIXED = (1.0, 4.0, 2.0, 1.5, 3.0, 1.2)  # speeds of six servers, in the order of their numbers
PACE = 1.0  # local steps a second of a server of speed 1
WARM_UP = 25.0  # seconds until spans and measurements have settled
RECOMPUTED = 4 / 3
GOOD = 0.85


@dataclass(frozen=True)
class Speeds(SimTraining):
    """Training at declared speeds; the first node only drives."""

    servers: tuple[float, ...] = ()

    def speed_of(self, seed: int, index: int) -> float:
        return PACE * (self.servers[index - 1] if index else 100.0)

    @property
    def ideal(self) -> float:
        """Samples a second of all servers together."""
        return sum(self.servers) * PACE * MODEL["batch_size"] / RECOMPUTED


def one_driver(options: Options, index: int, starts: int) -> Options:
    job = options.jobs[0]
    given = {**job.given, "role": "serve" if index else "drive"}
    if index:
        del given["data"]
    return replace(options, jobs=(replace(job, given=given),))


def scenario(
    text: Path, speeds: Sequence[float], links: Links, seed: int, faults: tuple[Fault, ...] = (), **given: Any
) -> Scenario:
    job = JobOptions("big", "pipeline", {"task": "gpt", **MODEL, "data": str(text), "span": 2, **given})
    training = Speeds(replace(SIMULATED, task=None), rounds=10**6, jobs=(job,), servers=tuple(speeds))
    return Scenario(
        len(speeds) + 1, seed, 10_000.0, links, faults, spread=2.0, sample_every=0.0, training=training,
        adjust=one_driver,
    )  # fmt: skip


class Swarm:
    """A simulated swarm, and what its driver and servers have done so far."""

    def __init__(self, plan: Scenario) -> None:
        self.plan = plan
        self.simulation = Simulation(plan)
        self.servers: dict[int, SpanServer] = {}  # all that ever were, by identity
        self.router: Callable[[int], SpanRouter] | None = None

    @property
    def job(self) -> PipelineJob:
        job = self.simulation.processes[0].node.jobs.jobs["big"]
        assert isinstance(job, PipelineJob)
        return job

    @property
    def samples(self) -> int:
        assert self.job.driver is not None
        return self.job.driver.counts.samples

    def jobs(self) -> list[PipelineJob]:
        found = (process.node.jobs.jobs.get("big") for process in self.simulation.processes.values())
        return [job for job in found if isinstance(job, PipelineJob)]

    async def pass_time(self, seconds: float) -> None:
        assert self.simulation.watch is not None
        await self.simulation.learn(self.simulation.watch, seconds)
        for job in self.jobs():
            if job.server is not None:
                self.servers[id(job.server)] = job.server
            if job.driver is not None and self.router is not None and type(job.driver.router) is SpanRouter:
                job.driver.router = self.router(self.plan.seed)

    async def rate(self, seconds: float) -> float:
        """Samples a second of the next seconds."""
        before = self.samples
        await self.pass_time(seconds)
        return (self.samples - before) / seconds


def simulated(plan: Scenario, main: Callable[[Swarm], Any], router: Callable[[int], SpanRouter] | None = None) -> Any:
    async def whole() -> Any:
        swarm = Swarm(plan)
        swarm.router = router
        await swarm.simulation.start()
        found = await main(swarm)
        await swarm.simulation.finish()
        return found

    with one_thread():
        return run_sim(whole())


class InTurn(SpanRouter):
    """A baseline: whoever holds the blocks gets its turn, however fast it is."""

    def __init__(self, seed: int) -> None:
        super().__init__(Random(seed))
        self._turns: Counter[tuple[int, str]] = Counter()

    def forward(self, first: int, blocks: int, samples: int, now: float, excluded: Any = ()) -> Hop | None:
        there = [
            peer for peer, server in self._candidates(now, excluded).items() if server.span.covers(first, first + 1)
        ]
        return self._next(there, first, lambda peer: min(blocks, self._servers[peer].span.stop))

    def backward(self, first: int, stop: int, samples: int, now: float, excluded: Any = ()) -> Hop | None:
        there = [peer for peer, server in self._candidates(now, excluded).items() if server.span.covers(first, stop)]
        return self._next(there, first, lambda peer: stop)

    def _next(self, peers: list[str], first: int, stop: Callable[[str], int]) -> Hop | None:
        if not peers:
            return None
        chosen = min(peers, key=lambda peer: self._turns[first, peer])
        self._turns[first, chosen] += 1
        return Hop(chosen, first, stop(chosen))


def throughput(
    text: Path, speeds: Sequence[float], links: Links, seed: int, seconds: float,
    router: Callable[[int], SpanRouter] | None = None, **given: Any,
) -> float:  # fmt: skip
    """Samples a second once everything has settled."""

    async def main(swarm: Swarm) -> float:
        await swarm.pass_time(WARM_UP)
        return await swarm.rate(seconds)

    found: float = simulated(scenario(text, speeds, links, seed, **given), main, router)
    return found


def chains(text: Path, speeds: Sequence[float], seed: int, seconds: float) -> float:
    """Samples a second of fixed chains: each has one server for each third of the blocks, and no other one helps."""
    return sum(throughput(text, speeds[begin::2], SHAPED, seed, seconds) for begin in (0, 1))


def death(text: Path, seed: int, seconds: float) -> Figures:
    """One of six servers dies: how long until the others do what they can, and how much that is."""
    at = WARM_UP + 5.0
    plan = scenario(text, [1.0] * 6, SHAPED, seed, (Fault(at, "crash", (2,), seconds=1000.0),))

    async def main(swarm: Swarm) -> Figures:
        await swarm.pass_time(at)
        left = swarm.plan.training.ideal * 5 / 6  # type: ignore[union-attr]
        recovered, rates = 0.0, []
        while recovered < 60.0:
            rates.append(await swarm.rate(1.0))
            recovered += 1.0
            if sum(rates[-2:]) / len(rates[-2:]) >= GOOD * left:
                break
        await swarm.pass_time(max(0.0, 10.0 - recovered))
        return {"of_ideal_after_death": await swarm.rate(seconds) / left, "recover_s": recovered}

    found: Figures = simulated(plan, main)
    return found


def kills(text: Path, seed: int, count: int) -> Figures:
    """A server dies every few seconds and comes back: is anything lost, or counted twice?"""
    faults = tuple(Fault(WARM_UP + 3.0 * number, "crash", (1 + number % 6,), seconds=4.0) for number in range(count))
    plan = scenario(text, [1.0] * 6, SHAPED, seed, faults)

    async def main(swarm: Swarm) -> Figures:
        await swarm.pass_time(WARM_UP)
        for _ in range(count + 5):
            await swarm.pass_time(3.0)
        driver = swarm.job.driver
        assert driver is not None
        counted: Counter[tuple[str, int, int]] = Counter()
        for server in swarm.servers.values():
            for ticket in server.ledger.counted_tickets():
                counted.update((ticket.driver, ticket.number, block) for block in range(ticket.first, ticket.stop))
        return {
            "microbatches_lost": driver.counts.lost,
            "counted_twice": sum(times - 1 for times in counted.values()),
            "gradients_counted": len(counted),
            "confirmed_too_late": driver.counts.late,
            "calls_repeated": driver.counts.repeated,
        }

    found: Figures = simulated(plan, main)
    return found


def loss_gap(text: Path, seed: int, samples: int) -> Figures:
    """The test loss of a pipeline's model, against one machine that trained on as many samples."""

    async def main(swarm: Swarm) -> tuple[int, np.ndarray[Any, Any]]:
        await swarm.pass_time(10.0)
        while swarm.samples < samples:
            await swarm.pass_time(5.0)
        swarm.simulation.rest()
        done = swarm.samples
        await swarm.pass_time(15.0)
        outline = swarm.job.parts.held.outline
        vector = np.empty(outline.layout.size, np.float32)
        for job in swarm.jobs():
            for number, part in job.parts.open.items():
                outline.part(number).put(vector, part.shared.policy.weights())
        assert ENDS in swarm.job.parts.open
        return done, vector

    plan = scenario(text, [1.0] * 6, FAST, seed)
    done, weights = simulated(plan, main)
    task = load_task("gpt", MODEL, str(text))
    host = ModelHost(task, "cpu", seed)
    with one_thread():
        alone = Trainer(host, seed=seed)
        trained = alone.steps(host.genesis, done // MODEL["batch_size"]).weights
        ours, theirs = (alone.evaluate(one).loss for one in (weights, trained))
        begin = alone.evaluate(host.genesis).loss
    return {
        "loss_gap_vs_one_machine": ours - theirs,
        "loss_pipeline": ours,
        "loss_one_machine": theirs,
        "loss_before": begin,
        "loss_samples": done,
    }


def words(path: Path) -> Path:
    """Text that a small model can learn something of."""
    rng = random.Random(0)
    vocabulary = ["".join(rng.choice("abcdefghij") for _ in range(rng.randint(2, 7))) for _ in range(200)]
    weights = [1 / (place + 1) for place in range(len(vocabulary))]
    path.write_text(" ".join(rng.choices(vocabulary, weights, k=60_000)))
    return path


def measure_seed(text: Path, seed: int, quick: bool) -> Row:
    seconds = 20.0 if quick else 60.0
    equal = Speeds(servers=(1.0,) * 6).ideal
    fast = 0.0 if quick else throughput(text, [1.0] * 6, FAST, seed, seconds) / equal
    shaped = throughput(text, [1.0] * 6, SHAPED, seed, seconds)
    progress(f"seed {seed}: {shaped / equal:.2f} of ideal")
    ours = throughput(text, MIXED, SHAPED, seed, seconds)
    fixed = chains(text, MIXED, seed, seconds)
    in_turn = throughput(text, MIXED, SHAPED, seed, seconds, InTurn)
    progress(f"seed {seed}: mixed speeds {ours:.0f}, fixed chains {fixed:.0f}, in turn {in_turn:.0f} samples a second")
    row: Row = {
        "seed": seed, "of_ideal": shaped / equal, **({} if quick else {"of_ideal_fast_links": fast}),
        "of_ideal_mixed": ours / Speeds(servers=MIXED).ideal,
        "samples_per_s": ours, "fixed_chain_samples_per_s": fixed, "round_robin_samples_per_s": in_turn,
        "vs_fixed_chain": ours / fixed, "vs_round_robin": ours / in_turn,
        "vs_whole_model": shaped / (equal * RECOMPUTED),
        **death(text, seed, seconds),
    }  # fmt: skip
    progress(f"seed {seed}: {row['of_ideal_after_death']:.2f} of ideal after a death, {row['recover_s']} s")
    row |= kills(text, seed, 4 if quick else 30)
    row |= loss_gap(text, seed, 2_000 if quick else 10_000)
    progress(f"seed {seed}: {row['loss_gap_vs_one_machine']:.4f} nats worse than one machine")
    return row


def measure(arguments: argparse.Namespace) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        text = words(Path(folder) / "words.txt")
        seeds = arguments.seeds[:1] if arguments.quick else arguments.seeds
        rows = [measure_seed(text, seed, arguments.quick) for seed in seeds]
    worst = ("microbatches_lost", "counted_twice")
    figures: Figures = {
        name: (max if name in worst else median)(float(row[name]) for row in rows)  # type: ignore[arg-type]
        for name in rows[0]
        if name != "seed"
    }
    return Report(figures, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=numbers, default=[1, 2, 3], help="seeds of the simulations")
    run("pipeline", measure, parser)


if __name__ == "__main__":
    main()
