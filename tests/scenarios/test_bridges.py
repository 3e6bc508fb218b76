"""Circles that lack what others know: over bridges some of it comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from p2pnode.deltaset.entry import BRIDGE
from p2pnode.merge.deltaset import DeltaSetPolicy
from p2pnode.node.taskchoice import TaskChoice
from p2pnode.simulate import Lesson, Plan, SimResult, Simulation, run_sim, simulate
from p2pnode.simulate.compute import one_thread

HALVES = TaskChoice(str(Path(__file__).with_name("halves.py")), device="cpu", given=frozenset({"spec"}))
QUIET = 30.0  # virtual seconds in which nobody trains


def test_each_circle_has_one_set_with_bridges_to_the_other() -> None:
    choice = TaskChoice("digits", settings={"bridge": 6.0}, device="cpu")
    lesson = Lesson(choice, "dirichlet:0.3", rounds=10, circle=3)

    async def main() -> list[DeltaSetPolicy]:
        simulation = Simulation(Plan(peers=6, seed=5, sample_every=0.0, lesson=lesson), alone=0)
        await simulation.start()
        assert simulation.watch is not None
        await simulation.learn(simulation.watch, 200.0)
        simulation.rest()
        await simulation.go_on(QUIET)
        nodes = [process.node for _, process in sorted(simulation.processes.items())]
        drawn = {(one.peer_id, other) for one in nodes for other in one.learner.standings.partners}  # type: ignore[union-attr]
        here, there = ({node.peer_id for node in nodes[part]} for part in (slice(0, 3), slice(3, 6)))
        assert any(one in here and other in there for one, other in drawn), "bridges are exchanges too"
        found = [node.learner.policy for node in nodes]  # type: ignore[union-attr]
        await simulation.finish()
        return found  # type: ignore[return-value]

    with one_thread():
        found = run_sim(main())
    circles = found[:3], found[3:]
    lineages = [circle[0].set.rules.lineage for circle in circles]
    assert lineages[0] != lineages[1]
    for circle, own, other in zip(circles, lineages, reversed(lineages), strict=True):
        assert len({policy.set.hash() for policy in circle}) == 1
        assert {entry.lineage for entry in circle[0].set.log} == {own}
        bridges = [entry for entry in circle[0].set.log if entry.kind == BRIDGE]
        assert {entry.other for entry in bridges} == {other}
        assert 2 <= len(bridges) <= 5  # every three rounds, as many as there are members


def learned(bridge: float) -> SimResult:
    """Two circles of eight, each with the half of the samples that lacks three of the ten classes."""
    return simulate(16, task=HALVES, split="parts", rounds=60, seed=3, circle=8, settings={"bridge": bridge}, alone=0)


def by_circle(result: SimResult) -> list[float]:
    """Mean accuracy on the common test data."""
    found: dict[str, list[float]] = {}
    for one in result.summaries:
        found.setdefault(one.circle, []).append(one.accuracy or 0.0)
    return [sum(values) / len(values) for _, values in sorted(found.items())]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_circle_learns_over_bridges_what_its_members_never_saw() -> None:
    apart, bridged = by_circle(learned(0.0)), by_circle(learned(6.0))
    assert max(apart) < 0.72  # seven of ten classes
    for without, with_bridges in zip(apart, bridged, strict=True):
        assert with_bridges > without + 0.02
