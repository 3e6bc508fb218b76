"""Swarms whose data are not in memory: rows read by index are dealt, shared and kept; streams are read by seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from p2pnode.simulate import simulate
from p2pnode.wire.errors import TaskProblem, UsageError
from tests.known import known
from tests.scenarios.results import with_training
from tests.scenarios.test_travelling import PLAN, TRAINING, check_nothing_is_lost, play

FILE = Path(__file__).with_name("rows_task.py")
BY_INDEX, STREAMED = f"{FILE}:ByIndex", f"{FILE}:Streamed"


def test_rows_that_are_read_by_index_travel_and_nothing_is_lost() -> None:
    result = play(replace(PLAN, training=with_training(TRAINING, task=BY_INDEX)))
    check_nothing_is_lost(result)
    assert any(row.holder != status.id for status in map(known, result.statuses) for row in status.shards)
    assert min(result.accuracies()) > 0.5  # two classes of ten would give 0.2


def test_rows_are_dealt_and_bad_ones_are_reported_with_file_and_line() -> None:
    result = simulate(3, task=BY_INDEX, task_options={"bad": 50}, rounds=15, seed=2)
    assert min(result.accuracies()) > 0.85 and not result.errors
    counts = [node.status.training.samples for node in result.nodes]
    assert sum(counts) == 1437 and min(counts) > 200
    reported = [event for status in result.statuses for event in known(status).events if event.kind == "data"]
    assert reported and all("is damaged" in event.text and f"{FILE}:" in event.text for event in reported)


def test_data_of_which_nothing_can_be_read_end_the_job_with_one_line() -> None:
    with pytest.raises(TaskProblem, match=r"data\(\) gave a data set that cannot be read: row 0 raised") as said:
        simulate(2, task=BY_INDEX, task_options={"bad": 1}, rounds=2)
    assert "\n" not in str(said.value)


def test_a_stream_is_learned_by_nodes_that_each_read_their_own_part() -> None:
    result = simulate(3, task=STREAMED, rounds=15, seed=2)
    assert min(result.accuracies()) > 0.85 and not result.errors
    assert result.digest == simulate(3, task=STREAMED, rounds=15, seed=2).digest


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"share_data": True}, "--share-data: a stream has no shards"),
        ({"split": "labels:2"}, "--split labels:2 is not for streams"),
        ({"split": "parts"}, "--split parts is not for streams"),
    ],
)
def test_what_streams_cannot_do_is_said(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        simulate(2, task=STREAMED, rounds=1, **options)  # type: ignore[arg-type]


def test_test_data_that_cannot_be_read_for_a_while_are_reported_and_training_goes_on() -> None:
    result = simulate(2, task=f"{FILE}:Blind", rounds=12, seed=2, alone=0)
    assert not result.errors and min(result.accuracies()) > 0.8
    reported = [event.text for event in known(result.statuses[0]).events if event.kind == "data"]
    assert any("none of the samples to evaluate on can be read" in text for text in reported)
