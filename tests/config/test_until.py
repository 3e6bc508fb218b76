"""What `--until` understands."""

from __future__ import annotations

import pytest

from p2pnode.config.until import THRESHOLD, Until, parse_until
from p2pnode.wire.errors import UsageError


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("converged", Until("converged", THRESHOLD)),
        ("converged:0.01", Until("converged", 0.01)),
        ("rounds:100", Until("rounds", 100)),
        ("steps:2000000", Until("steps", 2_000_000)),
        ("time:30m", Until("time", 1800)),
        ("time:90", Until("time", 90)),
        ("TIME:1.5h", Until("time", 5400)),
        ("accuracy:0.9", Until("accuracy", 0.9)),
        ("accuracy:90%", Until("accuracy", 0.9)),
    ],
)
def test_what_is_understood(text: str, until: Until) -> None:
    assert parse_until(text) == until
    assert parse_until(str(until)) == until


@pytest.mark.parametrize(
    "text",
    ["", "soon", "rounds", "rounds:0", "rounds:-1", "rounds:2.5", "time:", "time:1.2.3s", "time:5y", "accuracy:90",
     "accuracy:0", "steps:0", "steps:2e12", "steps:9999999999", "accuracy:nan", "converged:", "converged:-1"],
)  # fmt: skip
def test_slips_are_one_line_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="for example") as caught:
        parse_until(text)
    assert "\n" not in str(caught.value)
