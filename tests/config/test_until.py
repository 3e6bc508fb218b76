"""When to stop: what `--until` understands, and when it is so."""

from __future__ import annotations

import pytest

from p2pnode.config.until import CALM_ROUNDS, THRESHOLD, Monitor, Reached, Until, parse_until, reached
from p2pnode.wire.errors import UsageError

NOW = Reached(rounds=10, seconds=60.0, accuracy=0.9, update_norm=0.001, calm_rounds=CALM_ROUNDS)


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("converged", Until("converged", THRESHOLD)),
        ("converged:0.01", Until("converged", 0.01)),
        ("rounds:100", Until("rounds", 100)),
        ("time:30m", Until("time", 1800)),
        ("time:90", Until("time", 90)),
        ("TIME:1.5h", Until("time", 5400)),
        ("accuracy:0.9", Until("accuracy", 0.9)),
    ],
)
def test_what_is_understood(text: str, until: Until) -> None:
    assert parse_until(text) == until
    assert parse_until(str(until)) == until


@pytest.mark.parametrize(
    "text",
    ["", "soon", "rounds", "rounds:0", "rounds:-1", "rounds:2.5", "time:", "time:1.2.3s", "time:5y", "accuracy:90",
     "accuracy:nan", "converged:", "converged:-1"],
)  # fmt: skip
def test_slips_are_one_line_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="--until") as caught:
        parse_until(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("until", "is_so"),
    [
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
