"""A run with two train jobs: two models side by side at every node, each with its own circle, progress and end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import p2pnode
from p2pnode.config.options import JobOptions, Options
from p2pnode.simulate import SIMULATED, Scenario, SimTraining, run_scenario
from p2pnode.watch.graph import graph_of
from p2pnode.wire.errors import UsageError
from p2pnode.wire.status import NodeStatus
from tests.known import known

JOBS = {"small": {"task": "digits", "hidden": 16}, "wide": {"task": "digits", "hidden": 64}}


def status_of(result: p2pnode.SimResult, index: int) -> NodeStatus:
    return known(result.statuses[index])


def test_both_learn_and_share_the_compute_thread() -> None:
    result = p2pnode.simulate(3, jobs=JOBS, rounds=25, seed=3)
    assert result.finished
    assert result.left_over == ()
    for name in JOBS:
        accuracies = result.accuracies(name)
        assert len(accuracies) == 3
        assert min(accuracies) > 0.75, name
    sizes = {one.job: one.status.training.parameters for one in result.nodes}
    assert sizes["wide"] > sizes["small"]
    for index in range(3):
        jobs = status_of(result, index).jobs
        assert list(jobs) == ["small", "wide"], "in the order of the manifest"
        assert {job.condition for job in jobs.values()} == {"running"}
        shares = [known(job.compute_share) for job in jobs.values()]
        assert shares[0] == pytest.approx(shares[1], rel=0.4)
        assert sum(shares) + known(status_of(result, index).compute_idle) == pytest.approx(1.0, abs=0.05)
    peer = status_of(result, 0).peers[0]
    assert set(peer.jobs) == {"small", "wide"}
    assert set(peer.relations) == {"small", "wide"}
    both = [known(peer.in_job(name).similarity) for name in ("small", "wide")]
    assert peer.similarity == both[0] != both[1], (
        "each job has its own model, and the first is shown where none is named"
    )
    assert {row.job for row in status_of(result, 0).exchanges} == {"small", "wide"}
    picture = graph_of(status_of(result, 0), 1.0)
    of_one = picture.of_job("wide")
    assert {edge.job for edge in of_one.exchanges} == {"wide"}
    assert 0 < len(of_one.exchanges) < len(picture.exchanges)
    assert {row["job"] for row in result.rows()} == {"small", "wide"}


def test_a_job_that_fails_does_not_end_the_other() -> None:
    """One node's user gives a policy for a job that contradicts the run's."""

    def contradicting(options: Options, index: int, starts: int) -> Options:
        wrong = JobOptions("wide", given={"policy": "average"})
        return options if index != 1 else replace(options, jobs=(options.jobs[0], wrong))

    jobs = (JobOptions("small", given={"task_options": {"hidden": 8}}), JobOptions("wide"))
    training = SimTraining(replace(SIMULATED, task="digits"), rounds=8, jobs=jobs)
    training = replace(training, jobs=tuple(replace(job, given={"task": "digits", **job.given}) for job in jobs))
    result = run_scenario(Scenario(3, seed=3, seconds=200.0, sample_every=0.0, training=training, adjust=contradicting))
    assert result.finished
    assert result.errors == {}
    failed = status_of(result, 1)
    assert failed.jobs["wide"].condition == "ended"
    assert "--policy average contradicts" in failed.jobs["wide"].reason
    assert failed.jobs["small"].condition == "running"
    (event,) = [event for event in failed.events if event.kind == "job ended"]
    assert event.warning
    assert event.text.startswith("wide: ")
    assert len(result.accuracies("small")) == 3
    assert len(result.accuracies("wide")) == 2, "the other nodes go on with it"
    assert min(result.accuracies("small")) > 0.6


def test_only_the_chosen_jobs_are_done_and_announced() -> None:
    def choosy(options: Options, index: int, starts: int) -> Options:
        return options if index != 2 else replace(options, only=("wide",))

    jobs = tuple(JobOptions(name, given={"task": "digits"}) for name in ("small", "wide"))
    training = SimTraining(rounds=4, jobs=jobs)
    result = run_scenario(Scenario(3, seed=3, seconds=60.0, sample_every=0.0, training=training, adjust=choosy))
    assert list(status_of(result, 2).jobs) == ["wide"]
    assert {one.job for one in result.nodes if one.node == "n2"} == {"wide"}
    assert {one.job for one in result.nodes if one.node == "n0"} == {"small", "wide"}


def test_equal_arguments_give_equal_traces() -> None:
    first, second = (p2pnode.simulate(3, jobs=JOBS, rounds=3, seed=5).digest for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ({"Bad name": "digits"}, "not the name of a job"),
        ({"a": "digit"}, "no task 'digit'"),
        ({"a": {"task": "digits", "policy": "none"}}, "no merge policy"),
        ({f"job{number}": "digits" for number in range(9)}, "at most 8"),
    ],
)
def test_jobs_that_cannot_be_simulated_get_one_line(jobs: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        p2pnode.simulate(2, jobs=jobs, rounds=1)
    with pytest.raises(UsageError, match="contradicts jobs"):
        p2pnode.simulate(2, task="digits", jobs={"a": "digits"}, rounds=1)
