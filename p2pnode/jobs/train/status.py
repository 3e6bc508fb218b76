"""How the learning goes, for the views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...merging.deltaset.agreement import Agreement
from ...merging.deltaset.policy import DeltaSetPolicy
from ...wire.ids import PeerId
from ...wire.status import LearningStatus

if TYPE_CHECKING:
    from .job import Learning


def learning_status(learning: Learning, circle: str, aim: str, me: PeerId) -> LearningStatus:
    standings, evaluation, policy = learning.standings, learning.standings.evaluation, learning.policy
    correction = policy.correction if isinstance(policy, DeltaSetPolicy) else None
    agreement = policy.agreement if isinstance(policy, DeltaSetPolicy) else Agreement()
    return LearningStatus(
        task=learning.bench.task.name,
        parameters=learning.bench.layout.size,
        rounds=standings.rounds,
        steps=learning.trainer.steps_done,
        samples=learning.trainer.samples,
        steps_per_second=learning.trainer.speed,
        loss=standings.loss,
        test_loss=None if evaluation is None else evaluation.loss,
        accuracy=None if evaluation is None else evaluation.accuracy,
        update_norm=standings.update_norm if standings.monitor.norm is None else standings.monitor.norm,
        exchanges=standings.exchanges,
        entries=standings.entries,
        merged=standings.merged,
        problems=standings.problems,
        circle=circle,
        aim=aim,
        community=learning.likeness.communities.of.get(me, ""),
        bridges=standings.bridges,
        kept=0 if correction is None else correction.kept,
        restarted=0 if correction is None else correction.restarted,
        hash_checks=agreement.checks,
        hash_mismatches=agreement.mismatches,
        head=learning.heads().get(me),
        shards=len(learning.holdings.ids()),
        copied=learning.passing.copies,
        moved=learning.passing.moves,
        data_sent_bytes=learning.passing.sent_bytes,
        data_received_bytes=learning.work.received_bytes,
        visits=learning.visiting.made,
        visits_hosted=learning.visiting.hosted,
        visit_bytes=learning.visiting.bytes,
    )
