"""Shards travel in whole swarms that learn: the worst node gains, nothing is lost, and journeys are recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from p2pnode.config.split import parse_split
from p2pnode.network.sim import Fault
from p2pnode.simulate import SIMULATED, Scenario, SimResult, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.tasks.digits import SAMPLES, TEST_SAMPLES, Digits
from tests.known import known, train_job
from tests.scenarios.results import with_training

TRAINING = SimTraining(replace(SIMULATED, split=parse_split("labels:2"), policy="gossip", share_data=True), rounds=10)
PLAN = Scenario(peers=6, seed=5, seconds=200.0, sample_every=0.0, spread=3.0, training=TRAINING)
QUIET = 20.0  # virtual seconds in which nobody trains


def play(plan: Scenario, look: Callable[[Simulation], None] = lambda simulation: None) -> SimResult:
    """Let a swarm learn, then let what is on its way arrive; `look` at it in the end."""

    async def main() -> SimResult:
        simulation = Simulation(plan)
        await simulation.start()
        assert simulation.watch is not None
        await simulation.learn(simulation.watch, plan.seconds)
        simulation.rest()
        await simulation.go_on(QUIET)
        look(simulation)
        return await simulation.finish()

    with one_thread():
        result = run_sim(main())
    assert result.finished and result.left_over == ()
    return result


def check_nothing_is_lost(result: SimResult) -> None:
    """Every sample is in a shard that somebody has, and every shard has one holder who knows it."""
    samples: dict[str, int] = {}
    holders: dict[str, list[str]] = {}
    for status in result.statuses:
        assert status is not None
        for row in status.shards:
            samples[row.id] = row.samples
            if row.holder == status.id:
                holders.setdefault(row.id, []).append(status.name)
    assert sum(samples.values()) == SAMPLES - TEST_SAMPLES
    assert all(len(holders.get(shard, [])) == 1 for shard in samples), holders


def test_where_labels_are_unlike_the_worst_node_gains_by_data_that_travel() -> None:
    still = play(replace(PLAN, training=with_training(TRAINING, share_data=False)))
    result = play(PLAN)
    assert min(result.accuracies()) > min(still.accuracies()) + 0.15
    check_nothing_is_lost(result)
    seen = result.view().shards()
    assert sum(row["samples"] for row in seen) == SAMPLES - TEST_SAMPLES
    assert {row["holder"] for row in seen} <= {row["id"] for row in result.view().peers()}
    facts = result.summary()
    assert float(str(facts["shards_copied"])) >= 6 and float(str(facts["mb_data_per_node"])) > 0
    assert still.summary()["mb_data_per_node"] == 0
    kinds = {event.kind for status in result.statuses if status for event in status.events}
    assert {"shipped", "received"} <= kinds
    rows = [row for status in result.statuses if status for row in status.shards]
    assert any(row.received and row.confidence is not None and row.visits for row in rows)
    assert any(row.reason.startswith("copy to ") for row in rows)


def test_a_node_that_crashes_comes_back_to_its_shards() -> None:
    training = replace(with_training(TRAINING, policy="deltaset"), rounds=12)
    crash = Fault(12.0, "crash", (2,), seconds=4.0)
    result = play(replace(PLAN, faults=(crash,), training=training))
    check_nothing_is_lost(result)
    status = result.statuses[2]
    assert status is not None and any(row.received for row in status.shards)
    assert any(event.kind == "resumed learning" for event in status.events)


def test_wrong_labels_are_found_and_left_out_by_the_nodes_that_have_them() -> None:
    task = str(Path(__file__).with_name("noisy_task.py"))
    training = with_training(TRAINING, task=task, split=parse_split("labels:5"), policy=None)
    plan = replace(PLAN, peers=4, training=replace(training, rounds=40))
    right = Digits().data()["y"].numpy()
    counts = np.zeros(3)  # wrong ones left out, all left out, all wrong

    def look(simulation: Simulation) -> None:
        for process in simulation.processes.values():
            trainer = train_job(process.node).trainer
            rows = trainer.pool._rows.numpy()
            wrong = known(trainer.model_host.labels)[rows] != right[rows]
            out = trainer.pool.scores.states.quarantined
            counts[:] += (wrong & out).sum(), out.sum(), wrong.sum()

    play(plan, look)
    found, left_out, wrong = counts
    assert found / left_out > 0.75 and found / wrong > 0.6, counts


def test_a_node_alone_leaves_nothing_out_and_shows_what_it_trains_on() -> None:
    """Its own model, older and newer, is no evidence against samples that are hard to learn or have wrong labels."""
    task = str(Path(__file__).with_name("noisy_task.py"))
    result = play(replace(PLAN, peers=1, training=replace(with_training(TRAINING, task=task), rounds=40)))
    status = known(result.statuses[0])
    assert {state for row in status.shards for state in row.states} == {"active"}
    assert not [event for event in status.events if event.kind == "quarantined"]
