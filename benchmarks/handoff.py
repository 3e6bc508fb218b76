"""Handing shards over: how many states of a small swarm were tried, and how often a node was killed in them.

    python -m benchmarks.handoff [--json] [--quick]

A scope is explored to its end or to a million states: every order of events, every message lost, doubled or late, a
crash between any two writes. `lost` and `extra_holders` count scopes in which a promise was broken.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.common import Figures, progress, run
from tests.handoff.modelcheck import Checker
from tests.handoff.world import DEFAULT_SCOPES, Report, Scope, Violation, some_bytes

FULL_SCOPES = {
    **DEFAULT_SCOPES,
    "two claims, keepers and takeovers": Scope(some_bytes("a", "b"), terms=2, copies=2, takeovers=True),
    "a handoff, three terms": Scope(some_bytes("a"), terms=3, max_states=1_000_000),  # has far more
}


def measure(arguments: argparse.Namespace) -> Figures:
    reports, lost, extra, begun = [], 0, 0, time.perf_counter()
    for name, scope in (DEFAULT_SCOPES if arguments.quick else FULL_SCOPES).items():
        checker = Checker(scope)
        try:
            reports.append(checker.explore())
        except Violation as violation:
            progress(f"{name}: {violation}")
            lost, extra = lost + ("bytes" in str(violation)), extra + ("believes" in str(violation))
            continue
        progress(f"{name}: {reports[-1].states} states")
    seconds = time.perf_counter() - begun
    return {**sums(reports), "lost": lost, "extra_holders": extra, "seconds": round(seconds, 1)}


def sums(reports: list[Report]) -> Figures:
    return {
        "states": sum(report.states for report in reports),
        "transitions": sum(report.transitions for report in reports),
        "kill_points": sum(report.kill_points for report in reports),
        "settled": sum(report.settled for report in reports),
        "scopes": len(reports),
        "scopes_complete": sum(report.complete for report in reports),
    }


if __name__ == "__main__":
    run("handoff", measure)
