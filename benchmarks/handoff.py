"""Handing shards over: every state of a small swarm, kills at every place, kills of real processes, and the speed.

    python -m benchmarks.handoff [--json] [--quick]

`states` are those of the model checker, which explores a scope to its end or to a million states: every order of
events, every message lost, doubled or late, a crash between any two writes. `kill_points` are the crashes it tried and
those of whole nodes on a simulated network, at every write and every wait of giver, receiver and keeper. `sigkills` end
real processes while they move shards among each other. `mb_s_vs_raw` is the speed of handing over shards of 4 MB, fsync
and certificates included, relative to one stream between the same two daemons; `shards_per_s` is with shards of 80 kB.
`lost` and `extra_holders` count over all of that what must never happen.
"""

from __future__ import annotations

import argparse
import asyncio
import time

from benchmarks.common import Figures, progress, run
from benchmarks.handoff_live import measure_kills, measure_speed
from tests.shards.handoff.modelcheck import Checker
from tests.shards.handoff.world import DEFAULT_SCOPES, Report, Scope, Violation, some_bytes
from tests.shards.shard_storms import handoff_with_kills, kill_everywhere, storm

FULL_SCOPES = {
    **DEFAULT_SCOPES,
    "two claims, keepers and takeovers": Scope(some_bytes("a", "b"), terms=2, copies=2, takeovers=True),
    "a handoff, three terms": Scope(some_bytes("a"), terms=3, max_states=1_000_000),  # has far more
}
QUICK_SCOPES = {name: DEFAULT_SCOPES[name] for name in ("a handoff", "keepers, takeovers and a disk lost")}
VICTIMS = ((2, 0), (2, 1), (3, 0), (3, 1), (3, 2))  # nodes, and which of them dies: giver, receiver or keeper
PAIRS = range(1, 26, 2)  # places at which giver and receiver both die
STORMS = tuple((count, seed) for seed in range(6) for count in (2, 3, 5, 8))


def measure(arguments: argparse.Namespace) -> Figures:
    quick, begun = arguments.quick, time.perf_counter()
    parts = [
        explore(QUICK_SCOPES if quick else FULL_SCOPES),
        kill_simulated(VICTIMS[:2] if quick else VICTIMS, () if quick else PAIRS, STORMS[: 1 if quick else None]),
        asyncio.run(measure_kills(2 if quick else 30, count=2 if quick else 3)),
        asyncio.run(measure_speed(2 if quick else 7, 16 if quick else 48, 100 if quick else 500)),
    ]
    figures = {name: value for part in parts for name, value in part.items()}
    for name in ("kill_points", "lost", "extra_holders"):
        figures[name] = sum(int(part.get(name, 0)) for part in parts)
    return {**figures, "seconds": round(time.perf_counter() - begun, 1)}


def explore(scopes: dict[str, Scope]) -> Figures:
    """The model checker over some scopes."""
    reports, lost, extra = [], 0, 0
    for name, scope in scopes.items():
        try:
            reports.append(Checker(scope).explore())
        except Violation as violation:
            progress(f"{name}: {violation}")
            lost, extra = lost + ("bytes" in str(violation)), extra + ("believes" in str(violation))
            continue
        progress(f"{name}: {reports[-1].states} states")
    return {**sums(reports), "lost": lost, "extra_holders": extra}


def sums(reports: list[Report]) -> Figures:
    return {
        "states": sum(report.states for report in reports),
        "transitions": sum(report.transitions for report in reports),
        "kill_points": sum(report.kill_points for report in reports),
        "settled": sum(report.settled for report in reports),
        "scopes": len(reports),
        "scopes_complete": sum(report.complete for report in reports),
    }


def kill_simulated(
    victims: tuple[tuple[int, int], ...], pairs: range | tuple[()], storms: tuple[tuple[int, int], ...]
) -> Figures:
    """Whole nodes on a simulated network: killed at each place, two at places of a grid, and at random in storms."""
    outcomes = [outcome for count, victim in victims for outcome in kill_everywhere(count, victim)]
    progress(f"{len(outcomes)} handoffs with one kill")
    outcomes += [handoff_with_kills(2, {0: one, 1: other}) for one in pairs for other in pairs]
    progress(f"{len(outcomes)} handoffs with kills")
    after = [storm(seed, count) for count, seed in storms]
    progress(f"{len(after)} storms")
    kills = sum(outcome.died for outcome in outcomes) + sum(each.kills for each in after)
    return {
        "kill_points": kills,
        "kill_points_of_nodes": kills,
        "lost": sum(outcome.lost for outcome in outcomes) + sum(len(each.lost) for each in after),
        "extra_holders": sum(len(outcome.holders) > 1 for outcome in outcomes) + sum(len(each.extra) for each in after),
    }


if __name__ == "__main__":
    run("handoff", measure)
