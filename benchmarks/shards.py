"""What passing shards is worth: the rules of routes, against no data passed at equal total bytes.

    python -m benchmarks.shards [--json] [--quick] [--seeds N] [--only headline,rules,noise,splits,reserve]

Fashion-MNIST, eight peers, a perceptron of 51,000 parameters, 1,000 steps each in 100 rounds, the package's own
routes, states, sampling and merge policies. A row: rule, split, noise, merges, seed; accuracy of the nodes (of a delta
set: of x), of the worst one, of the nodes' average, of what nodes keep (`readout`; of a delta set: A); data_mb and
merge_mb, of all peers together; precision and recall of quarantined noise; wrong_shipped, the share of mislabelled
samples in shipments; steps, and processor seconds of training. Accuracies are means of the last five rounds. Rule
`none` gets as many bytes as the default, by denser merges; `none as is` has the policy's own density, `dense` averages
in fp32. `reserve` samples sure data less and leaves out as many steps; `less` simply trains so much less. The summary
has means over seeds of what the default gains.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from benchmarks.common import Figures, Report, need_fashion_mnist, progress, run, words
from benchmarks.shards_swarm import Plan, Row, Swarm
from p2pnode.wire.errors import UsageError

DEFAULT = "combined"
MERGES = ("gossip", "deltaset")
GROUPS = ("headline", "rules", "noise", "splits", "reserve")
SKEWED = Plan().split
CLOSE = 0.05  # how far total bytes may be apart
SHORT = 6  # rounds after which bytes are compared


class Table:
    """Rows as they come, each plan run once."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._done: dict[Plan, Row] = {}

    def row(self, plan: Plan, name: str = "") -> Row:
        if plan not in self._done:
            row = Swarm(plan).run()
            self._done[plan] = {**row, "rule": name or row["rule"]}
            self.rows.append(self._done[plan])
            progress(" ".join(f"{key} {value}" for key, value in self.rows[-1].items()))
        return self._done[plan]

    def pair(self, plan: Plan) -> None:
        """Run a plan, and one that passes no data but merges more densely, for as many bytes."""
        shared = self.row(plan)
        without = replace(plan, rule="none", density=matching_density(plan, shared))
        for _ in range(2):
            row = self.row(without)
            factor = total_bytes(shared) / total_bytes(row)
            if abs(factor - 1) <= CLOSE:
                return
            self.rows.remove(row)
            without = replace(without, density=without.density * factor)
        self.row(without)


def total_bytes(row: Row) -> float:
    return 1e6 * (float(row["data_mb"]) + float(row["merge_mb"]))


def matching_density(plan: Plan, shared: Row) -> float:
    """The density at which merges without shipments take as many bytes as the row `shared` took with them."""
    share = SHORT / plan.rounds
    short = replace(plan, rule="none", rounds=SHORT, steps=round(plan.steps * share), measured=0)
    if plan.merges == "gossip":  # its messages grow a little; those of a delta set at one density do not
        share = early_bytes(short) / (1e6 * float(shared["merge_mb"]))
    density, target = 0.04, share * total_bytes(shared)
    for _ in range(6):
        factor = target / early_bytes(replace(short, density=density))
        if abs(factor - 1) < CLOSE / 2:
            break
        density = min(1.0, density * factor)
    return density


def early_bytes(short: Plan) -> int:
    swarm = Swarm(short)
    swarm.play()
    return swarm.merging.bytes


def headline(table: Table, seeds: int) -> None:
    for seed in range(1, seeds + 1):
        for merges in MERGES:
            table.pair(Plan(DEFAULT, merges=merges, seed=seed))
        table.row(Plan("none", merges="dense", seed=seed), "dense")


def rules(table: Table, seeds: int) -> None:
    for seed in range(1, seeds + 1):
        for merges in MERGES:
            for rule in (DEFAULT, "random", "need", "confidence"):
                table.row(Plan(rule, merges=merges, seed=seed))
            table.row(Plan(DEFAULT, merges=merges, seed=seed, tuned=True))
    for merges in MERGES:
        table.row(Plan("none", merges=merges), "none as is")


def noise(table: Table, seeds: int) -> None:
    for merges in MERGES:
        for kind in ("flipped", "scattered"):
            for seed in range(1, seeds + 1):
                table.row(Plan(DEFAULT, noise=kind, merges=merges, seed=seed))
            for rule in ("unguarded", "random"):
                table.row(Plan(rule, noise=kind, merges=merges))


def splits(table: Table, seeds: int) -> None:
    for merges in MERGES:
        for seed in range(1, seeds + 1):
            table.pair(Plan(DEFAULT, "iid", merges=merges, seed=seed))
        table.pair(Plan(DEFAULT, "dirichlet:0.3", merges=merges))


def reserve(table: Table, seeds: int) -> None:
    for merges in MERGES:
        for seed in range(1, seeds + 1):
            plan = Plan(DEFAULT, merges=merges, seed=seed)
            table.row(plan)
            steps = int(table.row(replace(plan, reserve=True))["steps"])
            table.row(replace(plan, steps=steps), "less")


def gains(rows: list[Row]) -> Figures:
    """What the default is above no data at equal bytes, below itself without noise, and what the reserve saves."""
    figures: Figures = {}
    for merges in MERGES:
        for split in (SKEWED, "dirichlet:0.3", "iid"):
            for what in ("node", "worst", "averaged", "readout"):
                gaps = difference(rows, what, (DEFAULT, split, "none", merges), ("none", split, "none", merges))
                figures |= {f"{merges} {split} {what} gain": gap for gap in gaps}
        for kind in ("flipped", "scattered"):
            clean, noisy = (DEFAULT, SKEWED, "none", merges), (DEFAULT, SKEWED, kind, merges)
            figures |= {f"{merges} {kind} loss": gap for gap in difference(rows, "node", clean, noisy)}
            for what in ("precision", "recall"):
                figures |= {f"{merges} {kind} {what}": value for value in mean_of(rows, what, noisy)}
        spared, less = (f"{DEFAULT} reserve", SKEWED, "none", merges), ("less", SKEWED, "none", merges)
        for what in ("steps", "training_s"):
            saved = zip(mean_of(rows, what, spared), mean_of(rows, what, (DEFAULT, *spared[1:])), strict=False)
            figures |= {f"{merges} {what} saved by reserve": round(1 - some / all_, 3) for some, all_ in saved}
        for against, name in (((DEFAULT, *spared[1:]), "all steps"), (less, "less")):
            figures |= {f"{merges} reserve above {name}": gap for gap in difference(rows, "node", spared, against)}
    return figures


Cell = tuple[str, str, str, str]  # rule, split, noise, merges


def values(rows: list[Row], what: str, cell: Cell) -> dict[int, float]:
    """The values of one cell by seed."""
    found = [row for row in rows if (row["rule"], row["split"], row["noise"], row["merges"]) == cell]
    return {int(row["seed"]): float(row[what]) for row in found}


def mean_of(rows: list[Row], what: str, cell: Cell) -> Iterator[float]:
    """The mean over seeds; nothing when there is no such row."""
    found = values(rows, what, cell)
    if found:
        yield round(float(np.mean(list(found.values()))), 3)


def difference(rows: list[Row], what: str, one: Cell, other: Cell) -> Iterator[float]:
    """The mean over the seeds both cells have; nothing when there are none."""
    ours, theirs = values(rows, what, one), values(rows, what, other)
    both = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    if both:
        yield round(float(np.mean(both)), 2)


def measure(arguments: argparse.Namespace) -> Report:
    if set(arguments.only) - set(GROUPS):
        raise UsageError(f"--only takes some of {', '.join(GROUPS)}")
    need_fashion_mnist()
    torch.set_num_threads(1)
    table = Table()
    if arguments.quick:
        for merges in MERGES:
            table.pair(Plan(DEFAULT, merges=merges, rounds=16, steps=160, measured=1))
    else:
        for group in arguments.only:
            globals()[group](table, arguments.seeds)
    return Report(gains(table.rows), [{**row} for row in table.rows])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3, help="of the headline rows")
    parser.add_argument("--only", type=words, default=list(GROUPS), help=", ".join(GROUPS))
    run("shards", measure, parser)


if __name__ == "__main__":
    main()
