"""How a queues job goes, as the figures and tables that every view shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...wire.status import Figure, JobState, JobStatus, JobTable
from ...wire.types import Seconds

if TYPE_CHECKING:
    from .job import QueuesJob

QUEUE_COLUMNS = (
    ("queue", ""), ("owner", "peer"), ("term", ""), ("length", "items"), ("applied", "items"), ("score", ""),
    ("because of", ""), ("accuracy", "share"), ("training loss here", ""), ("parameters", ""),
)  # fmt: skip


def queues_status(job: QueuesJob, idle: float, now: Seconds) -> JobStatus:
    """The whole status of a queues job at this node."""
    rows = []
    figures = [
        Figure(
            "idle", idle, "idle", "share", "Share of its time in which this node's compute thread had nothing to do."
        ),
        Figure("items_trained", job.trained, "items made", help="Items that this node has trained.", total=True),
        Figure("steps_undone", job.undone, "steps taken back", help="Steps of replaced owners.", total=True),
        Figure("items_applied", job.applied, "items applied", help="Items this node applied as an owner.", total=True),
    ]
    for model in job.models.values():
        facts, lease, found = model.facts(idle, now), model.watch.lease, job.score(model)
        length, accuracy = (None, None) if facts is None else (facts.length, facts.accuracy)
        rows.append(
            (model.name, model.owner, None if lease is None else lease.term, length, model.log.items,
             round(found.total, 2), found.reason[:100], accuracy, model.loss, len(model.log.weights))
        )  # fmt: skip
        if accuracy is not None and len(figures) < 12:
            name = f"accuracy_{model.name}".replace("-", "_")[:40]
            figures.append(
                Figure(name, accuracy, f"accuracy {model.name}", "share", "On test data, by the queue's owner.")
            )
    speed = max(model.trainer.speed for model in job.models.values())
    return JobStatus(
        state=JobState(steps_per_second=speed, figures=tuple(figures)),
        steps=job.local_steps,
        tables=(JobTable("queues", QUEUE_COLUMNS, tuple(rows)),),
    )
