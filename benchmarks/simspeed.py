"""How much faster than real time a simulated swarm of idle nodes runs.

    python -m benchmarks.simspeed [--json] [--quick]

The clock starts when the nodes know each other. What they do from then on is ping, announce themselves, read the
directory and exchange addresses of peers; the node's code is unmodified. `cpu_seconds` is less than `real_seconds`
where other programs use the processor too.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.common import Report, Row, progress, run
from p2pnode.simulate import Scenario, Simulation, run_sim

SIZES = (16, 64, 256)
WARM_UP = 60.0  # virtual seconds until all know each other
MEASURED = {16: 3600.0, 64: 600.0, 256: 120.0}
MEASURED_QUICK = {16: 600.0, 64: 120.0, 256: 30.0}


async def measured(nodes: int, seconds: float) -> Row:
    """Let the nodes find each other, then time what they do."""
    simulation = Simulation(Scenario(peers=nodes, seed=1, sample_every=0.0))
    await simulation.start()
    await simulation.go_on(WARM_UP)
    calls = simulation.swarm.trace.counts["call"]
    real, cpu = time.perf_counter(), time.process_time()
    await simulation.go_on(seconds)
    real, cpu = time.perf_counter() - real, time.process_time() - cpu
    calls = simulation.swarm.trace.counts["call"] - calls
    await simulation.finish()
    return {
        "nodes": nodes,
        "virtual_to_real": seconds / real,
        "virtual_seconds": seconds,
        "real_seconds": real,
        "cpu_seconds": cpu,
        "calls": calls,
    }


def measure(arguments: argparse.Namespace) -> Report:
    spans = MEASURED_QUICK if arguments.quick else MEASURED
    rows = []
    for nodes in SIZES:
        rows.append(run_sim(measured(nodes, spans[nodes])))
        progress(f"{nodes} nodes")
    return Report(rows=rows)


if __name__ == "__main__":
    run("simspeed", measure)
