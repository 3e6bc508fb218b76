"""What a user says about a run that is another's is held against its plan, flag by flag."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import pytest

from p2pnode.config.options import TrainOptions
from p2pnode.jobs.train.binding import follow_plan, make_plan, open_model_host
from p2pnode.jobs.train.plan import TrainPlan
from p2pnode.wire.errors import UsageError

HASH = "ab" * 32
PLAN = TrainPlan("digits", "1", {}, 1, HASH, HASH, HASH, 0, settings={"density": 0.01})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"policy": "gossip"}, "--policy gossip contradicts the run, which has deltaset"),
        ({"aim": "own"}, "--aim own contradicts the run, which has shared"),
        ({"round_seconds": 3.0}, "--round-seconds 3.0 contradicts the run, which has 2.0"),
        ({"settings": {"density": 0.5}}, "--set density=0.5 contradicts the run, which has 0.01"),
        ({"settings": {"max_bits": 4.0}}, "--set max_bits=4.0 contradicts the run, which does not set it"),
    ],
)
def test_what_contradicts_the_run_is_refused_in_the_words_it_was_said_in(said: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        follow_plan(PLAN, TrainOptions(**said), never_opened)


def test_what_was_not_said_contradicts_nothing() -> None:
    with pytest.raises(AssertionError, match="opened"):
        follow_plan(PLAN, TrainOptions(reserve=True, share_data=True), never_opened)


def never_opened(key: Hashable, make: Callable[[], Any]) -> Any:
    raise AssertionError("opened")


@pytest.mark.parametrize(
    ("said", "algorithm", "settings"),
    [
        ({}, "muon", {"signs": 1.0}),
        ({}, "adamw", {}),
        ({"settings": {"signs": 0.0}}, "muon", {"signs": 0.0}),
        ({"settings": {"beta": 0.5}}, "muon", {"signs": 1.0, "beta": 0.5}),
        ({"policy": "average"}, "muon", {}),
    ],
)
def test_a_task_says_what_entries_suit_it(
    tmp_path: Path, said: dict[str, Any], algorithm: str, settings: dict[str, float]
) -> None:
    (tmp_path / "text.txt").write_text("all the words of a small book. " * 50)
    small: dict[str, int | str] = {"width": 8, "heads": 2, "layers": 1, "context": 8, "algorithm": algorithm}
    options = TrainOptions("gpt", task_options=small, data=tmp_path / "text.txt", device="cpu", **said)
    assert make_plan(open_model_host(options, 1), options, 1).settings == settings
