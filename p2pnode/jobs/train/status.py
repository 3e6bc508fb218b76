"""How a train job goes, and what its exchanges taught it about peers, as the values that views show."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...merging.deltaset.agreement import Agreement
from ...wire.ids import PeerId
from ...wire.status import JobState, JobStatus, JobTable, PeerState, TrainState, TrainStatus

if TYPE_CHECKING:
    from .job import TrainJob

LINE_LENGTH = 90  # characters of a sample's line


def train_status(job: TrainJob, circle: str, aim: str, me: PeerId) -> JobStatus:
    """The whole status of a job at this node."""
    progress, evaluation, policy = job.train_progress, job.train_progress.evaluation, job.policy
    agreement = Agreement() if policy.can.entries is None else policy.can.entries.agreement
    vetoes = {} if policy.can.authors is None else policy.can.authors.vetoes()
    train = TrainState(
        round=progress.rounds,
        loss=progress.loss,
        accuracy=None if evaluation is None else evaluation.accuracy,
        update_norm=progress.update_norm if progress.monitor.norm is None else progress.monitor.norm,
        head=job.heads().get(me),
        shards=len(job.shard_driver.ids()),
    )
    details = TrainStatus(
        task=job.model_host.task.name,
        aim=aim,
        parameters=job.model_host.layout.size,
        samples=job.trainer.samples,
        test_loss=None if evaluation is None else evaluation.loss,
        test_samples=0 if evaluation is None else evaluation.samples,
        test_available=len(job.model_host.test),
        shards_in_all=job.work.shards_in_all,
        exchanges=progress.exchanges,
        entries=progress.entries,
        bridges=progress.bridges,
        slowed=job.slowed,
        merged=progress.merged,
        problems=progress.problems,
        hash_checks=agreement.checks,
        hash_mismatches=agreement.mismatches,
        vetoed=len(vetoes),
        excluded=sum(count.excluded for count in vetoes.values()),
        let_in=0 if policy.can.corrections is None else policy.can.corrections.times_let_in,
        copied=job.shipping.copies,
        moved=job.shipping.moves,
        data_sent_bytes=job.shipping.sent_bytes,
        data_received_bytes=job.work.received_bytes,
        swaps=job.model_swap.made,
        swaps_hosted=job.model_swap.hosted,
        swap_bytes=job.model_swap.bytes,
    )
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


def describe_peers(job: TrainJob, peers: Iterable[PeerState]) -> tuple[PeerState, ...]:
    """The same peers with what this job knows of them: community, similarity, and the facts of their latest entries.

    Entries arrive all the time; what a peer answers when asked is older.
    """
    heads = job.heads()
    return tuple(_described(job, job.similarity.describe(peer), heads.get(PeerId(peer.id))) for peer in peers)


def _described(job: TrainJob, peer: PeerState, head: int | None) -> PeerState:
    facts = job.reported_facts(PeerId(peer.id))
    state = peer.job(job.name)
    train = state.training
    if facts is not None:
        train = replace(train, round=facts.round, loss=facts.loss, update_norm=facts.update_norm)
    if head is not None:
        train = replace(train, head=head)
    if train == state.training:
        return peer
    return replace(peer, jobs={**peer.jobs, job.name: replace(state, train=train)})
