"""What several scenarios ask of a simulation, and how they vary one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from p2pnode.simulate.result import SimResult
from p2pnode.simulate.scenario import SimTraining


def unseen_pairs(result: SimResult) -> list[tuple[int, int]]:
    """Pairs of running nodes (a, b) where a does not see b; none when everybody sees everybody."""
    running = {index: status for index, status in enumerate(result.statuses) if status is not None}
    seen = {index: {row.id for row in status.peers if row.present} for index, status in running.items()}
    return [(a, b) for a in running for b in running if a != b and running[b].id not in seen[a]]


def with_training(training: SimTraining, **options: Any) -> SimTraining:
    """The same with other training options."""
    return replace(training, options=replace(training.options, **options))
