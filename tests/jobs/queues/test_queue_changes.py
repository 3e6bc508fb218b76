"""Changes of a running queues job: only the founder's count, the latest wins, and slips are one line."""

from __future__ import annotations

import msgspec
import pytest

from p2pnode.jobs.queues.changes import (
    QueuesChange,
    check_change,
    decode_change,
    encode_change,
    read_order,
    signed,
    unchanged,
)
from p2pnode.jobs.queues.plan import PlannedModel
from p2pnode.jobs.queues.priority import PriorityWeights
from p2pnode.jobs.train.plan import TrainPlan
from p2pnode.wire.errors import UsageError
from p2pnode.wire.ids import Identity

FOUNDER, OTHER = (Identity(bytes([number]) * 32) for number in (1, 2))
FIRST = unchanged("run/zoo", PriorityWeights())
HASH = "0" * 64
DEEP = PlannedModel("deep", TrainPlan("digits", "1", {"hidden": 8}, 610, HASH, HASH, HASH, 1))
NAMES = ("small", "wide")


def ordered(*words: str, change: QueuesChange = FIRST, planned: PlannedModel | None = None) -> QueuesChange:
    return signed(FOUNDER, read_order(words, NAMES).applied_to(change, planned))


def test_orders_change_what_they_say_and_nothing_else() -> None:
    paused = ordered("pause", "wide")
    assert paused.paused == ("wide",) and paused.number == 1 and paused.weights == FIRST.weights
    assert ordered("resume", "wide", change=paused).paused == ()
    heavy = ordered("weights", "complexity=2", "idle=0", change=paused)
    assert (heavy.weights.complexity, heavy.weights.idle, heavy.weights.length) == (2.0, 0.0, 1.0)
    assert heavy.paused == ("wide",) and heavy.number == 2
    added = ordered("add", "deep=digits,hidden=8", change=heavy, planned=DEEP)
    assert added.models() == [DEEP] and added.weights == heavy.weights
    assert decode_change(encode_change(added)) == added


@pytest.mark.parametrize("forge", [{"number": 9}, {"paused": ("small",)}, {"scope": "run/other"}, {"signature": b""}])
def test_only_what_the_founder_signed_counts(forge: dict[str, object]) -> None:
    good = ordered("pause", "wide")
    check_change(good, "run/zoo", FOUNDER.peer_id)
    for wrong in (msgspec.structs.replace(good, **forge), signed(OTHER, FIRST)):
        with pytest.raises(ValueError, match="change"):
            check_change(wrong, "run/zoo", FOUNDER.peer_id)


def test_a_change_whose_models_cannot_be_read_is_refused() -> None:
    for added in ((b"nonsense",), (added_twice := ordered("add", "deep=digits", planned=DEEP).added) + added_twice):
        wrong = signed(FOUNDER, msgspec.structs.replace(FIRST, added=added))
        with pytest.raises(ValueError, match=r"malformed|twice"):
            check_change(wrong, "run/zoo", FOUNDER.peer_id)


def test_the_latest_change_wins() -> None:
    first = ordered("pause", "wide")
    assert FIRST.rank < first.rank < ordered("resume", "wide", change=first).rank


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "is no change of queues"),
        (("paus", "wide"), "did you mean 'pause'"),
        (("pause",), "write: queues pause QUEUE"),
        (("pause", "wyde"), "the run has no queue 'wyde'; did you mean 'wide'"),
        (("add", "wide=digits"), "there is a model 'wide' already"),
        (("weights", "idel=1"), "the score has no part 'idel'; did you mean 'idle'"),
        (("weights", "idle=11"), "from 0 to 10"),
        (("weights", "idle=nan"), "from 0 to 10"),
        (("weights", "idle"), "a weight is a number"),
    ],
)
def test_a_slip_is_one_line(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_order(words, NAMES)
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_there_are_at_most_sixteen_models() -> None:
    with pytest.raises(UsageError, match="at most 16"):
        read_order(("add", "new=digits"), [f"m{number}" for number in range(16)])
