"""How a queues job goes, as the figures and tables that every view shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...wire.status import Figure, FigureValue, JobState, JobStatus, JobTable

if TYPE_CHECKING:
    from .job import QueuesJob

QUEUES = "queues"  # title of the table with a row for each queue
QUEUE_COLUMNS = (
    ("queue", ""), ("owner", "peer"), ("term", ""), ("length", "items"), ("applied", "items"), ("score", ""),
    ("accuracy", "share"), ("training loss here", ""), ("parameters", ""), ("condition", ""),
)  # fmt: skip
SCORE_COLUMNS = (
    ("queue", ""), ("score", ""), ("convergence", ""), ("complexity", ""), ("length", ""), ("idle", ""),
    ("because", ""),
)  # fmt: skip
MEMBER_COLUMNS = (("member", "peer"), ("idle", "share"), ("steps a second", ""), ("owns", ""), ("without", ""))
MAX_MEMBERS = 100  # rows

Row = tuple[FigureValue, ...]


def queues_status(job: QueuesJob) -> JobStatus:
    """The whole status of a queues job at this node."""
    tables = (
        JobTable(QUEUES, QUEUE_COLUMNS, tuple(_queue_rows(job))),
        JobTable("scores", SCORE_COLUMNS, tuple(_score_rows(job))),
        JobTable("members", MEMBER_COLUMNS, tuple(_member_rows(job))),
    )
    speed = max(model.trainer.speed for model in job.models.values())
    return JobStatus(
        state=JobState(steps_per_second=speed, figures=tuple(_figures(job))),
        steps=job.producer.local_steps,
        tables=tables,
    )


def _queue_rows(job: QueuesJob) -> list[Row]:
    state = job.state
    rows: list[Row] = []
    for model in job.models.values():
        facts, lease = model.facts(state.idle, state.now), model.watch.lease
        length, accuracy = (None, None) if facts is None else (facts.length, facts.accuracy)
        reached = "target reached" if state.good_enough(model) else ""
        condition = "paused" if state.paused(model.name) else "no owner" if lease is None else reached
        rows.append(
            (model.name, model.owner, None if lease is None else lease.term, length, model.log.items,
             round(state.score(model).total, 3), accuracy, model.loss, len(model.log.weights), condition)
        )  # fmt: skip
    for name, reason in state.absent.items():
        rows.append((name, "", None, None, None, None, None, None, None, f"not trained here: {reason}"[:100]))
    return rows


def _score_rows(job: QueuesJob) -> list[Row]:
    rows: list[Row] = []
    for model in job.models.values():
        found = job.state.score(model)
        parts = (found.total, found.convergence, found.complexity, found.length, found.idle)
        rows.append((model.name, *(round(part, 3) for part in parts), found.reason[:100]))
    return rows


def _member_rows(job: QueuesJob) -> list[Row]:
    rows: list[Row] = []
    for member, one in list(job.state.announcements().items())[:MAX_MEMBERS]:
        without = () if one.models is None else (name for name in job.state.names if name not in one.models)
        owns, lacks = ", ".join(one.owned)[:100], ", ".join(without)[:100]
        rows.append((member, one.load.idle, round(one.load.speed, 1), owns, lacks))
    return rows


def _figures(job: QueuesJob) -> list[Figure]:
    state = job.state
    owned = ", ".join(model.name for model in job.models.values() if model.watch.mine)
    waiting = sum(len(model.outbox.unapplied(model.done)) for model in job.models.values())
    figures = [
        Figure(
            "idle", state.idle, "idle", "share",
            "Share of its time in which this node's compute thread had nothing to do.",
        ),
        Figure("owns", owned[:100] or None, "owns", help="Queues that this node owns."),
        Figure("items_trained", job.producer.trained, "items made", help="Items that it has trained.", total=True),
        Figure("items_waiting", waiting, "items not applied yet", help="Items of this node that no owner applied yet."),
        Figure("steps_undone", job.undone, "steps taken back", help="Steps of replaced owners.", total=True),
        Figure("items_applied", job.owner.applied, "items applied", help="Items it applied as an owner.", total=True),
    ]  # fmt: skip
    if job.producer.slowed:
        figures.append(Figure("slowed", job.producer.slowed[:100], "rests between items", help="Why it rests."))
    for model in job.models.values():
        facts = model.facts(state.idle, state.now)
        if facts is not None and facts.accuracy is not None and len(figures) < 12:
            name = f"accuracy_{model.name}".replace("-", "_")[:40]
            help = "On test data, by the queue's owner."
            figures.append(Figure(name, facts.accuracy, f"accuracy {model.name}", "share", help))
    return figures
