"""How a pipeline job goes, as the figures and tables that every view shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...wire.status import Figure, JobState, JobStatus, JobTable
from ...wire.types import Seconds
from .spans import ServerFacts, throughput

if TYPE_CHECKING:
    from .job import PipelineJob

BLOCK_COLUMNS = (("block", ""), ("servers", ""), ("samples a second, at most", ""), ("steps here", ""), ("state", ""))
SERVER_COLUMNS = (
    ("server", "peer"), ("blocks", ""), ("per sample and block", "s"), ("calls under way", ""), ("calls", ""),
    ("failed in a row", ""), ("state", ""),
)  # fmt: skip


def pipeline_status(job: PipelineJob, now: Seconds) -> JobStatus:
    """The whole status of a pipeline job at this node."""
    table = job.table()
    driver = job.driver
    rate = 0.0 if driver is None else driver.rate(now)
    return JobStatus(
        state=JobState(steps_per_second=rate or None, figures=tuple(_figures(job, rate))),
        steps=driver.counts.done if driver is not None else job.server.backwards if job.server is not None else 0,
        tables=(_blocks(job, table), *(() if driver is None else (_servers(job),))),
    )


def _figures(job: PipelineJob, rate: float) -> list[Figure]:
    found: list[Figure] = []
    if job.driver is not None:
        counts = job.driver.counts
        found += [
            Figure("loss", counts.loss, "training loss", help="Of this node's micro-batches, smoothed."),
            Figure("test_loss", counts.test_loss, "test loss", help="On some test data, through the servers."),
            Figure("micro_batches", counts.done, "micro-batches", help="Trained by this driver.", total=True),
            Figure("micro_batch_rate", rate, "micro-batches a second", help="Of this driver, lately."),
            Figure("lost", counts.lost, "micro-batches given up", help="Not computable in finite numbers.", total=True),
            Figure("repeated", counts.repeated, "calls repeated", help="Because a server did not answer.", total=True),
            Figure("late", counts.late, "gradients confirmed too late", help="They do not count.", total=True),
            Figure("checked", counts.checked, "answers compared", help="With those of other servers.", total=True),
            Figure("liars", counts.liars, "wrong answers", help="That two other servers contradict.", total=True),
        ]
    if job.server is not None:
        server = job.server
        found += [
            Figure("span", str(server.span), "blocks here", help="That this node serves."),
            Figure("forwards", server.forwards, "forward calls", help="Answered here.", total=True),
            Figure("backwards", server.backwards, "backward calls", help="Answered here.", total=True),
            Figure("taken_out", server.taken_out, "gradients taken out", help="Not confirmed in time.", total=True),
            Figure("busy", server.refused_busy, "calls refused as busy", help="Too many waited.", total=True),
        ]
    return found


def _blocks(job: PipelineJob, table: Mapping[str, ServerFacts]) -> JobTable:
    rates = throughput(table.values(), job.plan.blocks)
    rows: list[tuple[int | float | str | None, ...]] = []
    for block, rate in enumerate(rates):
        servers = sum(facts.span.covers(block, block + 1) for facts in table.values())
        held = None if job.server is None else job.server.steps_of(block)
        state = "no server" if not servers else "here" if held is not None else ""
        rows.append((block, servers, round(rate, 1), held, state))
    return JobTable("blocks", BLOCK_COLUMNS, tuple(rows))


def _servers(job: PipelineJob) -> JobTable:
    assert job.driver is not None
    rows = []
    for row in job.driver.router.rows():
        state = "left out until it announces itself again" if row.excluded else ""
        rows.append((row.peer, str(row.span), row.seconds, row.under_way, row.calls, row.failures, state))
    return JobTable("servers, as this driver measures them", SERVER_COLUMNS, tuple(rows))
