"""How a train job goes, as the values that views show."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...wire.ids import PeerId
from ...wire.status import JobState, JobStatus, JobTable
from ..model.status import train_state, train_status

if TYPE_CHECKING:
    from .job import TrainJob

LINE_LENGTH = 90  # characters of a sample's line


def job_status(job: TrainJob, circle: str, aim: str, me: PeerId) -> JobStatus:
    """The whole status of a job at this node."""
    progress, evaluation, policy = job.train_progress, job.train_progress.evaluation, job.policy
    details = replace(
        train_status(job),
        task=job.model_host.task.name,
        aim=aim,
        parameters=job.model_host.layout.size,
        samples=job.trainer.samples,
        test_available=len(job.model_host.test),
        shards_in_all=job.work.shards_in_all,
        slowed=job.slowed,
        let_in=0 if policy.can.corrections is None else policy.can.corrections.times_let_in,
        copied=job.shipping.copies,
        moved=job.shipping.moves,
        data_sent_bytes=job.shipping.sent_bytes,
        data_received_bytes=job.work.received_bytes,
        swaps=job.model_swap.made,
        swaps_hosted=job.model_swap.hosted,
        swap_bytes=job.model_swap.bytes,
    )
    train = replace(train_state(job, me), shards=len(job.shard_driver.ids()))
    figures = () if evaluation is None else job.model_host.task.figures(evaluation)
    return JobStatus(
        state=JobState(circle, job.trainer.speed, figures, train=train),
        steps=job.trainer.steps_done,
        community=job.similarity.communities.of.get(me, ""),
        tables=sample_table(progress.sample),
        train=details,
    )


def sample_table(text: str) -> tuple[JobTable, ...]:
    """The latest text of a language model in lines; nothing where there is none."""
    lines = [part for line in text.splitlines() for part in wrap(line, LINE_LENGTH)]
    return (JobTable("the model writes", (("", ""),), tuple((line,) for line in lines)),) if lines else ()
