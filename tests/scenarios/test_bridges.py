"""Circles that lack what others know: over bridges some of it comes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from p2pnode.circles.founding import circle_lineage
from p2pnode.config.split import parse_split
from p2pnode.jobs.train.job import TrainJob
from p2pnode.merging.deltaset.entry import BRIDGE, delta_of
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.deltaset.set import DeltaSet
from p2pnode.similarity.annealing import ROUNDS_TO_ONE
from p2pnode.simulate import SIMULATED, Scenario, SimResult, SimTraining, Simulation, run_sim, simulate
from p2pnode.simulate.compute import one_thread
from p2pnode.wire.status import PeerState
from tests.known import train_job

HALVES = replace(SIMULATED, task=str(Path(__file__).with_name("halves.py")))
QUIET = 30.0  # virtual seconds in which nobody trains


def test_each_circle_has_one_set_with_bridges_to_the_other() -> None:
    options = replace(SIMULATED, split=parse_split("dirichlet:0.3"), settings={"bridge": 6.0})
    training = SimTraining(options, rounds=10, circle=3)

    async def main() -> list[DeltaSetPolicy]:
        simulation = Simulation(Scenario(peers=6, seed=5, sample_every=0.0, training=training))
        await simulation.start()
        assert simulation.watch is not None
        await simulation.learn(simulation.watch, 200.0)
        simulation.rest()
        await simulation.go_on(QUIET)
        nodes = [process.node for _, process in sorted(simulation.processes.items())]
        drawn = {(one.peer_id, other) for one in nodes for other in train_job(one).train_progress.partners}
        here, there = ({node.peer_id for node in nodes[part]} for part in (slice(0, 3), slice(3, 6)))
        assert any(one in here and other in there for one, other in drawn), "bridges are exchanges too"
        found = [train_job(node).policy for node in nodes]
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
    for one in result.nodes:
        state = one.status.state
        found.setdefault(state.circle, []).append(state.training.accuracy or 0.0)
    return [sum(values) / len(values) for _, values in sorted(found.items())]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_circle_learns_over_bridges_what_its_members_never_saw() -> None:
    apart, bridged = by_circle(learned(0.0)), by_circle(learned(6.0))
    assert max(apart) < 0.72  # seven of ten classes
    gains = [with_bridges - without for without, with_bridges in zip(apart, bridged, strict=True)]
    assert min(gains) > 0.01 and sum(gains) / len(gains) > 0.03, gains


@pytest.fixture
def old_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a round all of a view are one community."""
    monkeypatch.setitem(ROUNDS_TO_ONE, "shared", 1.0)  # type: ignore[arg-type]


async def next_to_a_circle_of_three(rounds: int, bridge: float) -> tuple[TrainJob, float]:
    """A node alone in its circle, after some rounds, and how good it is then.

    It never saw three of the ten classes; two of the three other nodes did.
    """
    options = replace(HALVES, split=parse_split("parts"), settings={"bridge": bridge})
    training = SimTraining(options, rounds=rounds, circle=3)
    simulation = Simulation(Scenario(peers=4, seed=3, sample_every=0.0, training=training))
    await simulation.start()
    assert simulation.watch is not None
    await simulation.learn(simulation.watch, 400.0)
    alone = train_job(simulation.processes[3].node)
    assert alone.members.active() == []
    return alone, (await simulation.finish()).nodes[3].status.state.training.accuracy or 0.0


@pytest.mark.usefixtures("old_run")
def test_who_is_alone_in_its_circle_takes_in_the_work_of_others_over_bridges() -> None:
    with one_thread():
        alone, _ = run_sim(next_to_a_circle_of_three(rounds=12, bridge=1.0))
    deltas: DeltaSet = alone.policy.set  # type: ignore[attr-defined]
    bridges = [entry for entry in deltas.log if entry.kind == BRIDGE]
    assert len(bridges) >= 5, "in every second round or so"
    assert all(len(delta_of(entry, deltas.rules)) for entry in bridges)
    assert {entry.other for entry in bridges} == {circle_lineage(alone._setup.genesis, "circle 0")}
    whys = [
        alone.similarity.describe(PeerState(peer, "", "node", True)).reason for peer in alone.train_progress.partners
    ]
    assert any("bridge to" in why for why in whys)
    assert not any("in the circle" in why for why in whys), "nobody is in its circle"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("old_run")
def test_who_is_alone_in_its_circle_learns_what_it_never_saw() -> None:
    with one_thread():
        (_, without), (_, bridged) = (run_sim(next_to_a_circle_of_three(100, often)) for often in (0.0, 1.0))
    assert without < 0.72  # seven of ten classes
    assert bridged > without + 0.1
