"""Whether a plan can be carried out: everything a user may get wrong is said in one line before anything begins."""

from __future__ import annotations

from ..circles.advice import MAX_CIRCLE
from ..merging.registry import check_settings
from ..shards.split import parse_split
from ..similarity.partners import RANGES, partner_settings, without_partner_settings
from ..wire.errors import UsageError
from .scenario import BY_ITSELF, Scenario, SimTraining

MAX_PEERS = 10_000
MAX_ROUNDS = 1_000_000


def check_plan(plan: Scenario) -> None:
    """UsageError says what is wrong."""
    if not 1 <= plan.peers <= MAX_PEERS:
        raise UsageError(f"--peers {plan.peers} must lie between 1 and {MAX_PEERS:,}")
    if plan.lesson is not None:
        _check_lesson(plan.lesson)
        _check_data(plan.lesson, plan.peers, plan.seed)


def _check_lesson(lesson: SimTraining) -> None:
    if not BY_ITSELF <= lesson.circle <= MAX_CIRCLE:
        raise UsageError(f"--circle {lesson.circle} must lie between 1 and {MAX_CIRCLE}, or be 0: found by themselves")
    if not 1 <= lesson.rounds <= MAX_ROUNDS:
        raise UsageError(f"--rounds {lesson.rounds} must lie between 1 and {MAX_ROUNDS:,}")
    parse_split(lesson.split)
    try:
        partner_settings(lesson.choice.settings)
    except ValueError as error:
        raise UsageError(f"--set {error}") from None
    try:
        check_settings(lesson.choice.policy, without_partner_settings(lesson.choice.settings), besides=RANGES)
    except ValueError as error:
        raise UsageError(f"--policy {lesson.choice.policy[:40]}: {error}") from None


def _check_data(lesson: SimTraining, peers: int, seed: int) -> None:
    from ..shards.split import split_rows
    from ..tasks.find import load_task  # torch
    from ..tasks.task import length

    task = load_task(lesson.choice.spec, lesson.choice.options, lesson.choice.source)
    data = task.data()
    labels = task.labels(data)
    split_rows(None if labels is None else labels.numpy(), length(data), peers, parse_split(lesson.split), seed)
