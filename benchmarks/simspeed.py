"""How much faster than real time a simulated swarm of idle nodes runs.

    python -m benchmarks.simspeed [--json] [--quick]

The nodes have met before the clock is started: what is measured is pings, announcements, directory reads and talk about
peers, all of the unmodified node.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass

from benchmarks.common import progress
from p2pnode.simulate import Scenario, Simulation, run_sim

SIZES = (16, 64, 256)
WARM_UP = 60.0  # virtual seconds until all have met
MEASURED = {16: 3600.0, 64: 600.0, 256: 120.0}
MEASURED_QUICK = {16: 600.0, 64: 120.0, 256: 30.0}


@dataclass(frozen=True)
class Row:
    nodes: int
    virtual_seconds: float
    real_seconds: float
    cpu_seconds: float  # less than real_seconds where other programs want the processor too
    calls: int

    @property
    def virtual_to_real(self) -> float:
        return self.virtual_seconds / self.real_seconds


async def measured(nodes: int, seconds: float) -> Row:
    """Let the nodes meet; then time what they do from there on."""
    simulation = Simulation(Scenario(peers=nodes, seed=1, sample_every=0.0))
    await simulation.start()
    await simulation.go_on(WARM_UP)
    calls = simulation.swarm.trace.counts["call"]
    real, cpu = time.perf_counter(), time.process_time()
    await simulation.go_on(seconds)
    real, cpu = time.perf_counter() - real, time.process_time() - cpu
    calls = simulation.swarm.trace.counts["call"] - calls
    await simulation.finish()
    return Row(nodes, seconds, real, cpu, calls)


def main() -> None:
    parser = argparse.ArgumentParser(description="How much faster than real time a simulated swarm of idle nodes runs.")
    parser.add_argument("--json", action="store_true", help="one line for machines")
    parser.add_argument("--quick", action="store_true", help="shorter, within two minutes")
    args = parser.parse_args()
    spans = MEASURED_QUICK if args.quick else MEASURED
    rows = []
    for nodes in SIZES:
        rows.append(run_sim(measured(nodes, spans[nodes])))
        progress(f"{nodes} nodes")
    if args.json:
        print(json.dumps({"benchmark": "simspeed", "quick": args.quick, **as_json(rows)}))
        return
    print(f"{'nodes':>6} {'virtual s':>10} {'real s':>8} {'calls':>8} {'times real time':>16}")
    for row in rows:
        print(
            f"{row.nodes:>6} {row.virtual_seconds:>10.0f} {row.real_seconds:>8.2f} {row.calls:>8} "
            f"{row.virtual_to_real:>16.0f}"
        )


def as_json(rows: list[Row]) -> dict[str, object]:
    return {
        "virtual_to_real": {str(row.nodes): round(row.virtual_to_real, 1) for row in rows},
        "virtual_seconds": {str(row.nodes): row.virtual_seconds for row in rows},
        "real_seconds": {str(row.nodes): round(row.real_seconds, 3) for row in rows},
        "cpu_seconds": {str(row.nodes): round(row.cpu_seconds, 3) for row in rows},
        "calls": {str(row.nodes): row.calls for row in rows},
    }


if __name__ == "__main__":
    main()
