"""Whether a plan can be carried out: everything a user may get wrong is said in one line before anything begins."""

from __future__ import annotations

from ..errors import UsageError
from ..merge.registry import policy_named
from ..shards.share import parse_split
from .plan import MAX_CIRCLE, Lesson, Plan

MAX_PEERS = 10_000


def check_plan(plan: Plan) -> None:
    """UsageError says what is wrong."""
    if not 1 <= plan.peers <= MAX_PEERS:
        raise UsageError(f"--peers {plan.peers} must lie between 1 and {MAX_PEERS}")
    if plan.lesson is not None:
        _check_lesson(plan.lesson, plan.peers, plan.seed)


def _check_lesson(lesson: Lesson, peers: int, seed: int) -> None:
    if not 1 <= lesson.circle <= MAX_CIRCLE:
        raise UsageError(f"--circle {lesson.circle} must lie between 1 and {MAX_CIRCLE}")
    if not 1 <= lesson.rounds <= 1_000_000:
        raise UsageError(f"--rounds {lesson.rounds} must lie between 1 and 1,000,000")
    try:
        policy_named(lesson.choice.policy)
    except ValueError as error:
        raise UsageError(f"--policy: {error}") from None
    how = parse_split(lesson.split)
    from ..shards.share import split
    from ..task import length
    from ..tasks.find import load_task  # torch

    choice = lesson.choice
    task = load_task(choice.spec, choice.options, choice.source)
    data = task.data()
    labels = task.labels(data)
    split(None if labels is None else labels.numpy(), length(data), peers, how, seed)
