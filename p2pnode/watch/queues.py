"""Queues as views show them: rows of the tables that a job of queues reports, and who owned which queue when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..wire.status import JobStatus
from .graph import PeerGraph
from .rows import Row, TableRows

QUEUES, SCORES = "queues", "scores"  # titles of the tables (jobs/queues/status.py)
PARTS = ("convergence", "complexity", "length", "idle")  # of a score


def table_rows(jobs: Mapping[str, JobStatus], title: str) -> TableRows:
    """The rows of all tables of this title that jobs report. Columns are named as in the table, with _ for spaces."""
    several = sum(table.title == title for job in jobs.values() for table in job.tables) > 1
    return TableRows(
        {
            **({"job": name} if several else {}),
            **dict(zip([label.replace(" ", "_") for label, _ in table.columns], row, strict=False)),
        }
        for name, job in jobs.items()
        for table in job.tables
        if table.title == title
        for row in table.rows
    )


def queue_rows(picture: PeerGraph) -> TableRows:
    """A row for each queue: owner, term, length, accuracy, and the parts of its score with their reason.

    An observer has no job itself: it knows of a queue who owns it and how good its model is, as the owners say.
    """
    names = {peer.id: peer.name for peer in picture.peers}
    queues = table_rows(picture.jobs, QUEUES)
    scores = {(row.get("job"), row["queue"]): row for row in table_rows(picture.jobs, SCORES)}
    for row in queues:
        parts = scores.get((row.get("job"), row["queue"]), {})
        row |= {f"score_{part}": parts.get(part) for part in PARTS}
        row |= {"because": parts.get("because"), "owner_name": names.get(str(row["owner"]), "")}
    return queues or TableRows(_claimed(picture))


def _claimed(picture: PeerGraph) -> Iterable[Row]:
    for peer in picture.peers:
        for job, state in peer.jobs.items():
            figures = {figure.name: figure.value for figure in state.figures}
            for queue in filter(None, str(figures.get("owns") or "").split(", ")):
                accuracy = figures.get(f"accuracy_{queue}".replace("-", "_")[:40])
                yield {"job": job, "queue": queue, "owner": peer.id, "accuracy": accuracy, "owner_name": peer.name}


def ownership(pictures: Sequence[PeerGraph]) -> TableRows:
    """A row for each time that somebody owned a queue: queue, owner, term, and from when to when it was seen."""
    rows: dict[str, TableRows] = {}
    for picture in pictures:
        for row in queue_rows(picture):
            seen = rows.setdefault(f"{row.get('job', '')}/{row['queue']}", TableRows())
            if not row["owner"]:
                continue
            if not seen or (seen[-1]["owner"], seen[-1]["term"]) != (row["owner"], row.get("term")):
                if seen:
                    seen[-1]["until"] = picture.time
                known = {key: row.get(key) for key in ("queue", "owner", "owner_name", "term")}
                seen.append({**known, "since": picture.time, "until": picture.time})
            seen[-1]["until"] = picture.time
    return TableRows(row for found in rows.values() for row in found)
