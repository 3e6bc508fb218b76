"""When training has reached the goal of `--until`."""

from __future__ import annotations

import pytest

from p2pnode.config.until import Until
from p2pnode.training.progress import CALM_ROUNDS, Monitor, Reached, reached

NOW = Reached(rounds=10, seconds=60.0, accuracy=0.9, update_norm=0.001, calm_rounds=CALM_ROUNDS, steps=500)


@pytest.mark.parametrize(
    ("until", "is_so"),
    [
        (Until("steps", 500), True),
        (Until("steps", 501), False),
        (Until("rounds", 10), True),
        (Until("rounds", 11), False),
        (Until("time", 60), True),
        (Until("time", 61), False),
        (Until("accuracy", 0.9), True),
        (Until("accuracy", 0.95), False),
        (Until("converged", 0.01), True),
    ],
)
def test_when_it_is_reached(until: Until, is_so: bool) -> None:
    assert bool(reached(until, NOW)) is is_so


def test_nothing_is_reached_before_anything_is_known() -> None:
    unknown = Reached(0, 0.0, None, None, 0)
    assert not any(reached(Until(what, 0.5), unknown) for what in ("converged", "rounds", "time", "accuracy"))  # type: ignore[arg-type]


def test_convergence_needs_calm_for_a_while_and_one_jump_ends_it() -> None:
    monitor = Monitor(0.01)
    for _ in range(CALM_ROUNDS):
        monitor.note(0.001)
    assert monitor.calm_rounds == CALM_ROUNDS
    monitor.note(0.5)
    assert monitor.calm_rounds == 0
    assert monitor.norm is not None
    assert 0.04 < monitor.norm < 0.06
