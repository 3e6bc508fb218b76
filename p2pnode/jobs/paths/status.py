"""How a paths job goes, as the figures and tables that every view shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...wire.status import Figure, JobState, JobStatus, JobTable, TrainState
from .assign import Worker, powers
from .commands import expert_table
from .grid import PathGrid

if TYPE_CHECKING:
    from .job import PathsJob

PATH_COLUMNS = (
    ("path", ""), ("nodes", ""), ("speed", "steps/s"), ("samples of the founder", ""), ("loss", "nats"),
    ("loss by beginning", "nats"), ("here", ""),
)  # fmt: skip


def paths_status(job: PathsJob) -> JobStatus:
    """The whole status of a paths job at this node."""
    rows, table = [], job.table()
    for path in range(job.grid.paths):
        own = [worker for worker in table.values() if path in worker.paths]
        here = "trains it" if path in job.works else "keeps a copy" if path in job.kept else ""
        rows.append(
            (job.grid.name(path), len(own), powers(table, job.grid.paths)[path], job.setup.plan.samples[path],
             _mean([worker.loss for worker in own]), _mean([worker.loss_by_beginning for worker in own]), here)
        )  # fmt: skip
    work, experts = job.current(), [expert_table(job)] if job.experts.offered() else []
    return JobStatus(
        state=JobState(
            steps_per_second=job.worker().speed,
            figures=_figures(job),
            train=TrainState(round=job.rounds, loss=None if work is None else work.loss),
        ),
        steps=job.local_steps,
        tables=(grid_table(job.grid, table), JobTable("paths", PATH_COLUMNS, tuple(rows)), *experts),
    )


def grid_table(grid: PathGrid, table: Mapping[str, Worker]) -> JobTable:
    """Levels times options: the mean loss of the paths through each option, and how many nodes train them."""
    rows = []
    for level in range(grid.levels):
        cells: list[str] = []
        for option in range(grid.options):
            through = {path for path in range(grid.paths) if grid.choices(path)[level] == option}
            own = [worker for worker in table.values() if worker.paths & through]
            loss, nodes = _mean([worker.loss for worker in own]), f"{len(own)} node{'s' * (len(own) != 1)}"
            cells.append(nodes if loss is None else f"{loss:.3f} nats, {nodes}")
        rows.append((f"level {level}", *cells))
    columns = (("", ""), *((f"option {option}", "") for option in range(grid.options)))
    return JobTable("grid", columns, tuple(rows), shaded=True)


def _mean(losses: Sequence[float | None]) -> float | None:
    known = [loss for loss in losses if loss is not None]
    return sum(known) / len(known) if known else None


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
