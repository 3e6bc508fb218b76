"""What hostile members of a run can do to the honest ones, attack by attack, in the simulator.

    python -m benchmarks.hostile [--json] [--quick] [--attacks A,B] [--hostile 1,4] [--splits iid] [--seeds 1]

Ten peers learn digits; some of them are hostile (benchmarks/adversaries.py). A row for each attack: the accuracy of the
honest nodes, the worst of them, how many ended training for good, how many honest authors were excluded, and whether
all honest nodes agree after a quiet phase (`digests`, `weights`: 1 each). `without` is the accuracy of the honest nodes
without the hostile ones. Undefended attacks are shown as they are.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from benchmarks.adversaries import ATTACKS, corrupt
from benchmarks.common import Report, Row, numbers, progress_row, run, words
from p2pnode.config.split import parse_split
from p2pnode.jobs.train.job import TrainJob
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.wire.status import MAIN_JOB

QUICK_ATTACKS = ("none", "sign flip", "20 sign flips a round", "-5 mean, G = 1", "edge of the grid", "late fork proof")
QUIET = 60.0
JOINED = 5.0


@dataclass(frozen=True)
class Case:
    """One simulation. The last `hostile` peers are hostile; with `absent` they are not there at all."""

    attack: str
    hostile: int
    peers: int = 10
    rounds: int = 30
    split: str = "iid"
    seed: int = 1
    absent: bool = False

    @property
    def honest(self) -> range:
        return range(self.peers - self.hostile)

    def scenario(self) -> Scenario:
        options = replace(SIMULATED, split=parse_split(self.split), settings={"bounds": 1.0})
        training = SimTraining(options, rounds=self.rounds)
        plan = Scenario(self.peers, self.seed, sample_every=0.0, spread=JOINED, training=training)
        return replace(plan, seconds=4 * training.usual_seconds)


def play(case: Case) -> Row:
    """The figures of one case."""
    with one_thread():
        return run_sim(_play(case))


async def _play(case: Case) -> Row:
    simulation = Simulation(case.scenario())
    await simulation.start()
    waiting = asyncio.ensure_future(_corrupted(simulation, case))
    limit, honest = simulation.scenario.seconds, case.honest
    loop = asyncio.get_running_loop()
    while loop.time() < limit and not all(_rounds(simulation, index) >= case.rounds for index in honest):
        await simulation.go_on(2.0)
    simulation.rest()
    await simulation.go_on(QUIET)
    waiting.cancel()
    jobs = [job for index in honest if (job := _job(simulation, index)) is not None]
    policies = [job.policy for job in jobs if isinstance(job.policy, DeltaSetPolicy)]
    right = [job.evaluate().accuracy or 0.0 for job in jobs]
    names = {simulation.identities[index].peer_id for index in honest}
    excluded = {chain.peer for policy in policies for chain in policy.set.log.exclusions if chain.peer in names}
    row: Row = {
        "attack": case.attack if not case.absent else "(absent)",
        "hostile": case.hostile,
        "split": case.split,
        "seed": case.seed,
        "accuracy": fmean(right),
        "worst": min(right),
        "stopped": sum(_rounds(simulation, index) < case.rounds for index in honest),
        "honest_excluded": len(excluded),
        "digests": len({policy.set.log.digest() for policy in policies}),
        "weights": len({policy.set.hash() for policy in policies}),
        "authors": max(len({chain.peer for chain in policy.set.heads}) for policy in policies),
    }
    await simulation.finish()
    return row


async def _corrupted(simulation: Simulation, case: Case) -> None:
    """Turn the last peers hostile as soon as they train; absent ones never start to."""
    left = set(range(case.peers)) - set(case.honest)
    while left:
        await asyncio.sleep(0.1)
        for index in sorted(left):
            job = _job(simulation, index)
            if job is not None:
                left.discard(index)
                if case.absent:
                    simulation.swarm.crash(index)
                else:
                    corrupt(job, ATTACKS[case.attack], seed=1000 * case.seed + index)


def _job(simulation: Simulation, index: int) -> TrainJob | None:
    process = simulation.processes.get(index)
    job = None if process is None else process.node.jobs.jobs.get(MAIN_JOB)
    return job if isinstance(job, TrainJob) else None


def _rounds(simulation: Simulation, index: int) -> int:
    job = _job(simulation, index)
    return 0 if job is None else job.train_progress.rounds


def measure(arguments: argparse.Namespace) -> Report:
    quick = arguments.quick
    attacks = arguments.attacks or (QUICK_ATTACKS if quick else tuple(ATTACKS))
    unknown = set(attacks) - set(ATTACKS)
    if unknown:
        raise SystemExit(f"unknown attacks: {', '.join(sorted(unknown))}; known are {', '.join(ATTACKS)}")
    usual = Case("none", 0, peers=5, rounds=12) if quick else Case("none", 0)
    rows: list[Row] = []
    for split in arguments.splits:
        for seed in arguments.seeds:
            for hostile in arguments.hostile or ([1] if quick else [1, 4]):
                rows += _rows(replace(usual, hostile=hostile, split=split, seed=seed), attacks)
    worst = min(rows, key=lambda row: float(row["loses_pp"] or 0.0) * -1)
    return Report(
        {"attacks": len(attacks), "worst_attack": str(worst["attack"]), "loses_pp": worst["loses_pp"] or 0.0}, rows
    )


def _rows(case: Case, attacks: Sequence[str]) -> list[Row]:
    without = play(replace(case, absent=True))["accuracy"]
    rows = []
    for attack in attacks:
        row = play(replace(case, attack=attack))
        row["without"] = without
        row["loses_pp"] = 100 * (float(without or 0.0) - float(row["accuracy"] or 0.0))
        progress_row(row)
        rows.append(row)
    return rows


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--attacks", type=words, help=f"with commas between: {', '.join(ATTACKS)}".replace("%", "%%"))
    made.add_argument("--hostile", type=numbers, help="numbers of hostile peers; 1,4, with --quick 1")
    made.add_argument("--splits", type=words, default=["iid"])
    made.add_argument("--seeds", type=numbers, default=[1])
    return made


if __name__ == "__main__":
    run("hostile", measure, parser())
