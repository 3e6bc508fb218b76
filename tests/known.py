"""What must be there for a test to make sense."""

from __future__ import annotations

from typing import TypeVar

from p2pnode.jobs.train.job import TrainJob
from p2pnode.node.node import Node

T = TypeVar("T")


def known(value: T | None) -> T:
    """The value; an assertion where there is none."""
    assert value is not None
    return value


def train_job(node: Node, name: str = "main") -> TrainJob:
    """A train job of a node; an assertion where it is not prepared yet."""
    job = node.jobs.jobs.get(name)
    assert isinstance(job, TrainJob)
    return job


def train_jobs(node: Node) -> dict[str, TrainJob]:
    """The train jobs of a node that are prepared."""
    return {name: job for name, job in node.jobs.jobs.items() if isinstance(job, TrainJob)}
