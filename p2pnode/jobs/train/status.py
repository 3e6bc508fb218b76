"""How the learning goes, for the views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...merging.deltaset.agreement import Agreement
from ...wire.ids import PeerId
from ...wire.status import TrainStatus

if TYPE_CHECKING:
    from .job import TrainJob


def learning_status(learning: TrainJob, circle: str, aim: str, me: PeerId) -> TrainStatus:
    train_progress, evaluation, policy = learning.train_progress, learning.train_progress.evaluation, learning.policy
    correction = None if policy.can.corrections is None else policy.can.corrections.correction
    agreement = Agreement() if policy.can.entries is None else policy.can.entries.agreement
    return TrainStatus(
        task=learning.model_host.task.name,
        parameters=learning.model_host.layout.size,
        rounds=train_progress.rounds,
        steps=learning.trainer.steps_done,
        samples=learning.trainer.samples,
        steps_per_second=learning.trainer.speed,
        loss=train_progress.loss,
        test_loss=None if evaluation is None else evaluation.loss,
        accuracy=None if evaluation is None else evaluation.accuracy,
        update_norm=train_progress.update_norm if train_progress.monitor.norm is None else train_progress.monitor.norm,
        exchanges=train_progress.exchanges,
        entries=train_progress.entries,
        merged=train_progress.merged,
        problems=train_progress.problems,
        circle=circle,
        aim=aim,
        community=learning.likeness.communities.of.get(me, ""),
        bridges=train_progress.bridges,
        kept=0 if correction is None else correction.kept,
        restarted=0 if correction is None else correction.restarted,
        hash_checks=agreement.checks,
        hash_mismatches=agreement.mismatches,
        head=learning.heads().get(me),
        shards=len(learning.shard_driver.ids()),
        copied=learning.passing.copies,
        moved=learning.passing.moves,
        data_sent_bytes=learning.passing.sent_bytes,
        data_received_bytes=learning.work.received_bytes,
        visits=learning.model_swap.made,
        visits_hosted=learning.model_swap.hosted,
        visit_bytes=learning.model_swap.bytes,
    )
