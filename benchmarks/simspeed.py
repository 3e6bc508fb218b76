"""How much faster than real time a simulated swarm of idle nodes runs.

    python -m benchmarks.simspeed [--json] [--quick]

The nodes have met before the clock is started: what is measured is pings, announcements, directory reads and talk about
peers, all of the unmodified node.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass

from p2pnode.simulate import Plan, Simulation, run_sim

SIZES = (16, 64, 256)
WARM_UP = 60.0  # virtual seconds until all have met
MEASURED = {16: 3600.0, 64: 600.0, 256: 120.0}
MEASURED_QUICK = {16: 600.0, 64: 120.0, 256: 30.0}


@dataclass(frozen=True)
class Row:
    nodes: int
    virtual_seconds: float
    real_seconds: float
    calls: int

    @property
    def virtual_to_real(self) -> float:
        return self.virtual_seconds / self.real_seconds


class Timed(Simulation):
    """A simulation that notes when the warm-up was over."""

    begun = 0.0
    calls = 0

    def warmed_up(self) -> None:
        self.begun = time.perf_counter()
        self.calls = self.swarm.trace.counts["call"]

    async def measure(self, seconds: float) -> Row:
        """Run all nodes; time only what comes after the warm-up."""
        await self.start()
        await self.go_on(WARM_UP)
        self.warmed_up()
        await self.go_on(seconds)
        took = time.perf_counter() - self.begun
        calls = self.swarm.trace.counts["call"] - self.calls
        await self.finish()
        return Row(self.plan.peers, seconds, took, calls)


def measure(nodes: int, seconds: float) -> Row:
    plan = Plan(peers=nodes, seed=1, seconds=WARM_UP + seconds, sample_every=0.0)
    return run_sim(Timed(plan).measure(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description="How much faster than real time a simulated swarm of idle nodes runs.")
    parser.add_argument("--json", action="store_true", help="one line for machines")
    parser.add_argument("--quick", action="store_true", help="shorter, within two minutes")
    args = parser.parse_args()
    spans = MEASURED_QUICK if args.quick else MEASURED
    rows = []
    for nodes in SIZES:
        rows.append(measure(nodes, spans[nodes]))
        print(f"{nodes} nodes done", file=sys.stderr)
    if args.json:
        print(json.dumps(as_json(rows)))
        return
    print(f"{'nodes':>6} {'virtual s':>10} {'real s':>8} {'calls':>8} {'times real time':>16}")
    for row in rows:
        print(
            f"{row.nodes:>6} {row.virtual_seconds:>10.0f} {row.real_seconds:>8.2f} {row.calls:>8} "
            f"{row.virtual_to_real:>16.0f}"
        )


def as_json(rows: list[Row]) -> dict[str, object]:
    return {
        "benchmark": "simspeed",
        "virtual_to_real": {str(row.nodes): round(row.virtual_to_real, 1) for row in rows},
        "virtual_seconds": {str(row.nodes): row.virtual_seconds for row in rows},
        "real_seconds": {str(row.nodes): round(row.real_seconds, 3) for row in rows},
        "calls": {str(row.nodes): row.calls for row in rows},
    }


if __name__ == "__main__":
    main()
