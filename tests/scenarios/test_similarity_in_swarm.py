"""Nodes that learn know each other by what they have learned, and say why they chose each partner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from p2pnode.simulate import Scenario, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from tests.scenarios.results import with_training
from tests.scenarios.test_training import PLAN, TRAINING


def learned(plan: Scenario) -> Simulation:
    async def main() -> Simulation:
        simulation = Simulation(plan)
        await simulation.start()
        assert simulation.watch is not None
        await simulation.learn(simulation.watch, plan.seconds)
        simulation.finished = await simulation.finish()  # type: ignore[attr-defined]
        return simulation

    with one_thread():
        return run_sim(main())


def test_everybody_is_known_by_a_fingerprint_and_chosen_for_a_reason() -> None:
    result = learned(replace(PLAN, training=replace(TRAINING, rounds=20))).finished  # type: ignore[attr-defined]
    for status in result.statuses:
        assert status is not None
        rows = [row for row in status.peers if row.present]
        assert len(rows) == 7
        assert all(row.similarity is not None and 0.0 < row.similarity <= 1.05 for row in rows)
        assert all(row.reason for row in rows), "in twenty rounds everybody of eight was a partner"
        assert all(row.community for row in rows)


def test_two_circles_choose_inside_and_bridge_with_a_reason() -> None:
    training = replace(TRAINING, rounds=25, circle=4)
    result = learned(replace(PLAN, training=training)).finished  # type: ignore[attr-defined]
    whys = [row.reason for status in result.statuses for row in status.peers if row.reason]
    assert any("bridge to" in why or "by chance" in why for why in whys)
    assert any("in the circle" in why for why in whys)
    assert sum(status.jobs["main"].training.bridges for status in result.statuses) > 0


@pytest.mark.parametrize("policy", ["deltaset", "gossip"])
def test_the_run_says_how_partners_are_weighed(policy: str) -> None:
    training = replace(with_training(TRAINING, policy=policy, settings={"explore": 1.0}), rounds=4)
    result = learned(replace(PLAN, peers=5, training=training)).finished  # type: ignore[attr-defined]
    for status in result.statuses:
        assert any("by chance" in row.reason for row in status.peers), "one in every round"
