"""Several jobs on the command line, in the environment and in TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from p2pnode.config.options import JobOptions, Options, TrainOptions
from p2pnode.config.resolve import from_environment, from_flags, from_toml, resolve
from p2pnode.config.settings import read_jobs
from p2pnode.config.until import Until
from p2pnode.wire.errors import UsageError


def test_a_job_has_a_task_and_options_of_training_or_of_the_task() -> None:
    small, wide = read_jobs(["small=digits", "wide=digits,hidden=256,policy=average,until=rounds:5,data=/tmp/x"])
    assert (small.name, small.kind) == ("small", "train")
    assert small.given == {"task": "digits", "task_options": {}}
    assert wide.given == {
        "task": "digits", "task_options": {"hidden": "256"}, "policy": "average",
        "until": Until("rounds", 5.0), "data": Path("/tmp/x"),
    }  # fmt: skip


def test_flags_environment_and_toml_say_the_same() -> None:
    flags = resolve([from_flags({"job": ["a=digits,hidden=8", "b=text"], "only": "a,b"})], Path())
    variables = {"P2PNODE_JOB": "a=digits,hidden=8; b=text", "P2PNODE_ONLY": "a b"}
    environment = resolve([from_environment(variables)], Path())
    tables = [{"name": "a", "task": "digits", "hidden": 8}, {"name": "b", "task": "text"}]
    toml = resolve([from_toml({"job": tables, "only": ["a", "b"]}, "config.toml")], Path())
    assert flags.options == environment.options == toml.options
    assert [job.name for job in flags.options.jobs] == ["a", "b"]
    assert flags.options.only == ("a", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("digits", "is not NAME=TASK"),
        ("a=", "is not NAME=TASK"),
        ("A=digits", "not the name of a job"),
        ("manifest=digits", "not the name of a job"),
        ("../up=digits", "not the name of a job"),
        ("a=digits,until=never", "a: until"),
        ("a=digits,hidden", "is not KEY=VALUE"),
    ],
)
def test_a_wrong_job_gets_one_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_jobs([text])


def test_jobs_are_few_and_have_different_names() -> None:
    with pytest.raises(UsageError, match="one name"):
        read_jobs(["a=digits", "a=text"])
    with pytest.raises(UsageError, match="at most 8"):
        read_jobs([f"job{number}=digits" for number in range(9)])


@pytest.mark.parametrize("other", [{"task": "digits"}, {"meet-only": "yes"}])
def test_jobs_contradict_a_separate_task_and_meeting_only(other: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="contradicts --job"):
        resolve([from_flags({"job": ["a=digits"], **other})], Path())


def test_what_concerns_one_task_holds_only_for_a_job_alone() -> None:
    train = TrainOptions("digits", {"hidden": 8}, Path("/data"), device="cpu", policy="gossip")
    options = Options(train=train, jobs=(JobOptions("named", given={"task": "text", "policy": "average"}),))
    assert options.train_options("main", alone=True) == train
    other, named = options.train_options("other", alone=False), options.train_options("named", alone=False)
    assert (other.task, other.task_options, other.data) == (None, {}, None)
    assert (other.device, other.policy) == ("cpu", "gossip")
    assert (named.task, named.policy, named.device) == ("text", "average", "cpu")


def test_the_task_of_a_policy_may_be_named_together_with_its_job() -> None:
    found = resolve([from_flags({"job": ["critic,kind=actors"], "task": "file.py:Short"})], Path()).options
    assert (found.train.task, found.jobs[0].kind) == ("file.py:Short", "actors")
    for jobs in (["a=digits"], ["critic,kind=actors", "b=digits"], ["critic=other.py,kind=actors"], ["a,kind=mean"]):
        with pytest.raises(UsageError, match="contradicts"):
            resolve([from_flags({"job": jobs, "task": "file.py:Short"})], Path())
