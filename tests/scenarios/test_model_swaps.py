"""Models visit data that stay home: what is learned there comes home, and no sample does."""

from __future__ import annotations

from dataclasses import replace

from p2pnode.config.split import parse_split
from p2pnode.network.sim import Fault
from p2pnode.simulate import SIMULATED, Scenario, SimResult, SimTraining
from tests.known import known
from tests.scenarios.results import with_training
from tests.scenarios.test_travelling import play

SWAPS = replace(SIMULATED, split=parse_split("labels:5"), no_model_swaps=False)
ALONE = replace(SWAPS, policy="gossip", settings={"density": 1e-6})  # merges bring nothing
TRAINING = SimTraining(ALONE, rounds=20)
PLAN = Scenario(peers=3, seed=5, seconds=300.0, sample_every=0.0, spread=3.0, training=TRAINING)


def mean_test_loss(result: SimResult) -> float:
    losses = [status.jobs["main"].training.test_loss for status in result.statuses if status and status.jobs]
    return sum(loss for loss in losses if loss is not None) / len(losses)


def test_what_models_learn_on_visits_comes_home_and_no_sample_does() -> None:
    still = play(replace(PLAN, training=with_training(TRAINING, no_model_swaps=True)))
    result = play(PLAN)
    assert max(still.accuracies()) < 0.55, "each knows its own five of ten labels"
    assert mean_test_loss(result) < 0.8 * mean_test_loss(still)
    jobs = [status.jobs["main"].training for status in result.statuses if status is not None and status.jobs]
    assert all(each.swaps_hosted for each in jobs) and sum(each.swaps for each in jobs) >= 3
    assert all(each.swap_bytes > 0 and each.data_sent_bytes == 0 for each in jobs)
    texts = [event.text for status in result.statuses if status for event in status.events if event.kind == "swap"]
    assert texts and all("the data are private: models travel" in text for text in texts)


def test_a_host_that_dies_in_the_middle_costs_its_visitors_nothing_else() -> None:
    crashes = tuple(Fault(when, "crash", (1,), seconds=1.0) for when in (13.0, 17.0, 21.0, 25.0))
    result = play(replace(PLAN, faults=crashes))
    jobs = [status.jobs["main"] for status in result.statuses if status is not None and status.jobs]
    assert len(jobs) == 3 and all(known(each.state.training.round) >= TRAINING.rounds for each in jobs)
    assert jobs[0].training.swaps_hosted and jobs[2].training.swaps_hosted
    assert all(status.peers and not any(row.faults for row in status.peers) for status in result.statuses if status)


def test_inside_a_circle_nobody_visits() -> None:
    result = play(replace(PLAN, training=SimTraining(SWAPS, rounds=8)))
    assert not any(status.jobs["main"].training.swaps_hosted for status in result.statuses if status and status.jobs)
