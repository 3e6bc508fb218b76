"""How a paths job goes, as the figures and tables that every view shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...wire.status import Figure, JobState, JobStatus, JobTable, TrainState
from .commands import expert_table

if TYPE_CHECKING:
    from .job import PathsJob

PATH_COLUMNS = (
    ("path", ""), ("nodes", ""), ("speed", "steps/s"), ("samples of the founder", ""), ("loss", "nats"),
    ("loss by beginning", "nats"), ("here", ""),
)  # fmt: skip


def paths_status(job: PathsJob) -> JobStatus:
    """The whole status of a paths job at this node."""
    rows, workers = [], list(job.table().values())
    for path in range(job.grid.paths):
        own = [worker for worker in workers if path in worker.paths]
        work = job.works.get(path)
        tested = None if work is None or work.tested is None else work.tested.loss
        honest = None if work is None or work.tested_by_beginning is None else work.tested_by_beginning.loss
        speed = sum(worker.speed / len(worker.paths) for worker in own)
        here = "trains it" if work is not None else "keeps a copy" if path in job.kept else ""
        rows.append((job.grid.name(path), len(own), speed, job.setup.plan.samples[path], tested, honest, here))
    work, experts = job.current(), [expert_table(job)] if job.experts.offered() else []
    return JobStatus(
        state=JobState(
            steps_per_second=job.worker().speed,
            figures=_figures(job),
            train=TrainState(round=job.rounds, loss=None if work is None else work.loss),
        ),
        steps=job.local_steps,
        tables=(JobTable("paths", PATH_COLUMNS, tuple(rows)), *experts),
    )


def _figures(job: PathsJob) -> tuple[Figure, ...]:
    works = list(job.works.values())
    names = ", ".join(job.grid.name(work.path) for work in works)
    figures = [Figure("path", names or "none yet", "trains path", help="The path or paths that this node trains.")]
    tested = [work.tested.loss for work in works if work.tested is not None]
    honest = [work.tested_by_beginning.loss for work in works if work.tested_by_beginning is not None]
    if tested:
        help = "Loss on test samples whose whole document belongs to this node's path."
        figures.append(Figure("loss_path", sum(tested) / len(tested), "loss of its path", "nats", help))
    if honest:
        help = "Loss on test samples that are routed to this node's path by their beginning only."
        figures.append(Figure("loss_prefix", sum(honest) / len(honest), "loss by beginning", "nats", help))
    help = "Blocks at this node: of paths that it trains or keeps a copy of."
    figures.append(Figure("blocks", len(job.held.open), "blocks here", help=help))
    return tuple(figures)
