"""What a user says about a run that is another's is held against its plan, flag by flag."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import pytest

from p2pnode.config.options import TrainOptions
from p2pnode.jobs.train.binding import follow_plan
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
