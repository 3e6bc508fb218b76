"""Laptops of actors jobs as views show them: how each gets on with its policy, as it reports itself."""

from __future__ import annotations

from collections.abc import Sequence

from .graph import PeerGraph
from .rows import TableRows

FIGURES = {  # columns by the names of figures (jobs/actors/status.py)
    "task": "task",
    "return": "return",
    "curve": "over_time",
    "env_steps": "steps",
    "steps_a_second": "steps_a_second",
    "critic_version": "critic_version",
    "values_in_time": "values_in_time",
    "critic_used": "critic",
}


def laptop_rows(picture: PeerGraph) -> TableRows:
    """A row for each laptop that learns a policy, whoever looks: a member or an observer."""
    rows = TableRows()
    for peer in picture.peers:
        for job, state in peer.jobs.items():
            figures = {figure.name: figure.value for figure in state.figures}
            if "env_steps" not in figures:
                continue
            about = {"laptop": peer.id, "name": peer.name, "job": job, "present": peer.present}
            known = {column: figures.get(name) for name, column in FIGURES.items()}
            rows.append({**about, **known})
    return rows


def return_curves(pictures: Sequence[PeerGraph]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Times and returns of each laptop, by its id and job, as far as they were seen."""
    curves: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for picture in pictures:
        for row in laptop_rows(picture):
            if isinstance(row["return"], int | float):
                curves.setdefault((row["laptop"], row["job"]), []).append((picture.time, float(row["return"])))
    return curves
