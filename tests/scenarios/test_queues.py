"""Several models with queues in a simulated swarm: owners die and are cut off; nothing is lost or counts twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

import p2pnode
from p2pnode.compression.weights import from_units
from p2pnode.config.options import JobOptions
from p2pnode.jobs.queues.job import QueuesJob
from p2pnode.network.sim import Fault
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, Simulation, run_sim
from p2pnode.simulate.compute import one_thread
from p2pnode.wire.errors import UsageError
from tests.known import known

MODELS = {"small": {"task": "digits", "hidden": 8}, "wide": {"task": "digits", "hidden": 32}}
GIVEN = {"models": MODELS, "lease": 12.0, "reallocate": 1000.0}
PLAN = Scenario(
    4,
    seed=2,
    seconds=1000.0,
    sample_every=0.0,
    training=SimTraining(replace(SIMULATED, task="digits"), rounds=10**6, jobs=(JobOptions("zoo", "queues", GIVEN),)),
)


def jobs_of(simulation: Simulation) -> list[QueuesJob]:
    found = [process.node.jobs.jobs["zoo"] for _, process in sorted(simulation.processes.items())]
    assert all(isinstance(job, QueuesJob) for job in found)
    return found  # type: ignore[return-value]


def checked(jobs: Sequence[QueuesJob]) -> None:
    """All nodes have the same log of each queue, and every item that anybody made is in it exactly once."""
    for name in MODELS:
        models = [job.models[name] for job in jobs]
        assert len({model.log.head for model in models}) == 1, f"{name}: the nodes differ"
        assert len({model.log.weights.tobytes() for model in models}) == 1
        for job, model in zip(jobs, models, strict=True):
            me = job.context.services.identity.peer_id
            assert model.log.applied.get(me, 0) == model.outbox.next_seq - 1, f"{name}: an item was lost"


def simulated(faults: tuple[Fault, ...], seconds: float, quiet: float = 60.0) -> list[QueuesJob]:
    """The jobs after a simulation that ends with a quiet time, in which nobody trains and everything is applied."""

    async def main() -> list[QueuesJob]:
        simulation = Simulation(replace(PLAN, faults=faults))
        await simulation.start()
        await simulation.learn(known(simulation.watch), seconds)
        simulation.rest()
        await simulation.learn(known(simulation.watch), quiet)
        jobs = jobs_of(simulation)
        one_owner(jobs)
        await simulation.finish()
        return jobs

    with one_thread():
        return run_sim(main())


def one_owner(jobs: Sequence[QueuesJob]) -> None:
    """All nodes know the same owner of each queue."""
    for name in MODELS:
        assert len({job.models[name].owner for job in jobs}) == 1, name


def test_all_models_learn_and_all_nodes_have_equal_weights() -> None:
    jobs = simulated((), 150.0)
    checked(jobs)
    model = jobs[0].models["wide"]
    assert known(model.trainer.evaluate(from_units(model.log.weights)).accuracy) > 0.85


def test_queues_described_in_python_show_scores_owners_and_members() -> None:
    job = p2pnode.Queues({"small": ("digits", {"hidden": 8}), "wide": MODELS["wide"]}, weights={"idle": 0.25}, lease=12)
    result = p2pnode.simulate(3, job=job, seconds=40, seed=3)
    assert [row["queue"] for row in result.rows("queues")] == ["small", "wide"]
    assert all(row["owner"] and row["applied"] > 0 for row in result.rows("queues"))
    assert all(row["steps_a_second"] > 0 for row in result.rows("members")), (
        "members say how fast and how idle they are"
    )
    assert len(result.rows("members")) == 3
    for row in result.view().queues():
        parts = sum(row[f"score_{part}"] for part in ("convergence", "complexity", "length", "idle"))
        assert abs(row["score"] - parts) < 0.01 and row["score_idle"] <= 0.25
        assert "weights" in row["because"] and "passes since it got better" in row["because"]
    spans = result.view().ownership()
    assert {row["queue"] for row in spans} == {"small", "wide"} and all(row["until"] >= row["since"] for row in spans)
    assert result.view().plot_queues().axes


def test_an_owner_that_dies_is_replaced_and_nothing_is_lost() -> None:
    jobs = simulated((Fault(60.0, "crash", (0,), seconds=60.0),), 180.0)
    assert min(known(job.models["small"].watch.lease).term for job in jobs) >= 1, "another term has begun"
    checked(jobs)


def test_two_owners_in_a_split_end_as_one() -> None:
    jobs = simulated((Fault(60.0, "split", (0,), seconds=90.0),), 220.0)
    checked(jobs)
    assert max(known(job.models["small"].watch.lease).term for job in jobs) >= 1, "somebody took over"


def test_a_producer_that_dies_between_push_and_answer_counts_once() -> None:
    crashes = tuple(Fault(40.0 + 11.3 * number, "crash", (1 + number % 3,), seconds=2.0) for number in range(8))
    checked(simulated(crashes, 160.0))


def test_a_newcomer_gets_the_weights_of_the_owner() -> None:
    jobs = simulated((Fault(1.0, "crash", (3,), seconds=120.0),), 170.0)
    checked(jobs)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"models": {"one": "digits"}}, "queues are for several models; to train one, use --task"),
        ({}, "queues need two models or more"),
        ({"models": {f"m{number}": "digits" for number in range(17)}}, "too many"),
        ({"models": MODELS, "length": -1}, "length: Expected `float` >= 0.0"),
        ({"models": MODELS, "capacity": 0}, "capacity: Expected `int` >= 1"),
        ({"models": MODELS, "capasity": 3}, "no option 'capasity'; did you mean 'capacity'"),
        ({"models": {"a": "digits", "b": "digitz"}}, "digitz"),
        ({"models": MODELS, "prefer_owner": "wyde"}, "the run has no queue 'wyde'; did you mean 'wide'"),
    ],
)
def test_wrong_options_are_one_line(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        p2pnode.simulate(2, jobs={"zoo": {"kind": "queues", **given}}, seconds=5)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
