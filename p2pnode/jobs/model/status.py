"""How the shared model of a job does, and what exchanges taught a node about its peers, as values that views show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...merging.deltaset.agreement import Agreement
from ...wire.ids import PeerId
from ...wire.status import PeerState, TrainState, TrainStatus

if TYPE_CHECKING:
    from .job import ModelJob


def train_state(job: ModelJob, me: PeerId) -> TrainState:
    """What peers may ask about the shared model at this node."""
    progress, evaluation = job.train_progress, job.train_progress.evaluation
    return TrainState(
        round=progress.rounds,
        loss=progress.loss,
        accuracy=None if evaluation is None else evaluation.accuracy,
        update_norm=progress.update_norm if progress.monitor.norm is None else progress.monitor.norm,
        head=job.heads().get(me),
    )


def train_status(job: ModelJob) -> TrainStatus:
    """What this node's user sees of the shared model. A kind adds its own figures."""
    progress, evaluation, policy = job.train_progress, job.train_progress.evaluation, job.policy
    agreement = Agreement() if policy.can.entries is None else policy.can.entries.agreement
    vetoes = {} if policy.can.authors is None else policy.can.authors.vetoes()
    return TrainStatus(
        test_loss=None if evaluation is None else evaluation.loss,
        test_samples=0 if evaluation is None else evaluation.samples,
        exchanges=progress.exchanges,
        entries=progress.entries,
        bridges=progress.bridges,
        merged=progress.merged,
        problems=progress.problems,
        hash_checks=agreement.checks,
        hash_mismatches=agreement.mismatches,
        vetoed=len(vetoes),
        excluded=sum(count.excluded for count in vetoes.values()),
    )


def describe_peers(job: ModelJob, peers: Iterable[PeerState]) -> tuple[PeerState, ...]:
    """The same peers with what this job knows of them: community, similarity, and the facts of their latest entries.

    Entries arrive all the time; what a peer answers when asked is older.
    """
    heads = job.heads()
    return tuple(_described(job, job.similarity.describe(peer), heads.get(PeerId(peer.id))) for peer in peers)


def _described(job: ModelJob, peer: PeerState, head: int | None) -> PeerState:
    facts = job.reported_facts(PeerId(peer.id))
    state = peer.job(job.name)
    train = state.training
    if facts is not None:
        loss = facts.loss or None  # 0: its loop reports none
        train = replace(train, round=facts.round, loss=loss, update_norm=facts.update_norm)
    if head is not None:
        train = replace(train, head=head)
    if train == state.training:
        return peer
    return replace(peer, jobs={**peer.jobs, job.name: replace(state, train=train)})
