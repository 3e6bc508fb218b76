"""Visit histories: whatever is done to what others signed is noticed, and they stay small."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.shards.visits import (
    CLOCK_SLACK,
    KEPT_WHEN_FULL,
    MAX_BYTES,
    MAX_MODELS,
    MAX_VISITS,
    VisitHistory,
    check_history,
    check_nothing_left_out,
    decode_history,
    encode_history,
    latest_by_model,
    length,
    with_visit,
)
from p2pnode.wire.ids import Identity

SHARD = "ab" * 16
KEYS = [Identity(bytes([number]) * 32) for number in range(1, 6)]
NOW = 10_000.0


def journey(count: int, models: int = 3, shard: str = SHARD) -> VisitHistory:
    history = VisitHistory(shard)
    for number in range(count):
        key = KEYS[number % len(KEYS)]
        history = with_visit(key, history, f"model{number % models}", number, 0.2, 0.6, 100.0 + number)
    return history


def replaced(history: VisitHistory, place: int, **fields: object) -> VisitHistory:
    visits = list(history.visits)
    visits[place] = msgspec.structs.replace(visits[place], **fields)
    return msgspec.structs.replace(history, visits=tuple(visits))


@settings(max_examples=25)
@given(count=st.integers(0, 60), models=st.integers(1, 40))
def test_an_honest_history_of_any_length_is_good_and_small(count, models):
    history = journey(count, models)
    check_history(history, SHARD, NOW)
    assert length(history) == count and len(history.visits) < MAX_VISITS
    data = encode_history(history)
    assert len(data) < MAX_BYTES / 2 and decode_history(data) == history


@settings(max_examples=60)
@given(
    count=st.integers(1, 40),
    place=st.integers(0, MAX_VISITS),
    change=st.sampled_from(
        [
            {"before": 0.9},
            {"after": 0.99},
            {"round": 77},
            {"time": 101.5},
            {"model": "mine"},
            {"peer": KEYS[4].peer_id, "model": "other"},
            {"number": 3000},
            {"previous": b"x" * 32},
            {"signature": b"y" * 64},
        ]
    ),
)
def test_no_word_of_a_visit_can_be_changed(count, place, change):
    history = journey(count)
    with pytest.raises(ValueError, match=r"not signed|out of order"):
        check_history(replaced(history, place % len(history.visits), **change), SHARD, NOW)


@settings(max_examples=40)
@given(count=st.integers(2, 40), order=st.randoms(use_true_random=False))
def test_another_order_is_noticed(count, order):
    history = journey(count)
    visits = list(history.visits)
    order.shuffle(visits)
    if tuple(visits) == history.visits:
        return
    with pytest.raises(ValueError, match="missing or out of order"):
        check_history(msgspec.structs.replace(history, visits=tuple(visits)), SHARD, NOW)


@settings(max_examples=40)
@given(count=st.integers(2, 40), place=st.integers(0, MAX_VISITS))
def test_a_visit_left_out_is_noticed_wherever_it_was(count, place):
    history = journey(count)
    place %= len(history.visits)
    visits = history.visits[:place] + history.visits[place + 1 :]
    shorter = msgspec.structs.replace(history, visits=visits)
    if place == len(history.visits) - 1 and visits:  # the latest: a copy taken earlier would look the same
        with pytest.raises(ValueError, match="left out"):
            check_nothing_left_out(shorter, history.visits[place])
    else:
        with pytest.raises(ValueError, match="missing"):
            check_history(shorter, SHARD, NOW)


def test_a_copy_taken_earlier_is_no_fraud():
    check_history(journey(5), SHARD, NOW)
    check_nothing_left_out(journey(8), journey(5).visits[-1])
    check_nothing_left_out(journey(40), journey(5).visits[-1])  # summarised by now


def test_the_summary_cannot_be_changed_or_dropped():
    history = journey(30)
    summary = history.summary
    assert summary is not None and summary.visits == 30 - len(history.visits)
    bad = msgspec.structs.replace(summary, visits=summary.visits + 1)
    with pytest.raises(ValueError, match="not signed"):
        check_history(msgspec.structs.replace(history, summary=bad), SHARD, NOW)
    with pytest.raises(ValueError, match="missing"):
        check_history(msgspec.structs.replace(history, summary=None), SHARD, NOW)
    with pytest.raises(ValueError, match="latest visits are missing"):
        check_history(msgspec.structs.replace(history, visits=()), SHARD, NOW)
    with pytest.raises(ValueError, match="missing or out of order"):
        check_history(msgspec.structs.replace(history, summary=journey(20).summary), SHARD, NOW)


def test_the_history_of_another_shard_is_refused():
    with pytest.raises(ValueError, match="another shard"):
        check_history(journey(3, shard="cd" * 16), SHARD, NOW)
    moved = msgspec.structs.replace(journey(3, shard="cd" * 16), shard=SHARD)
    with pytest.raises(ValueError, match="out of order"):
        check_history(moved, SHARD, NOW)


def test_visits_from_the_future_and_out_of_time_are_refused():
    later = with_visit(KEYS[0], journey(3), "model", 1, 0.1, 0.2, NOW + CLOCK_SLACK + 1)
    with pytest.raises(ValueError, match="future"):
        check_history(later, SHARD, NOW)
    check_history(later, SHARD, NOW + 2)
    backwards = with_visit(KEYS[0], later, "model", 1, 0.1, 0.2, NOW - 1)
    with pytest.raises(ValueError, match="older than the one before"):
        check_history(backwards, SHARD, NOW + 2)


def test_summaries_keep_the_models_seen_last():
    history = journey(MAX_VISITS * 4, models=MAX_VISITS * 4)
    assert history.summary is not None and len(history.summary.models) == MAX_MODELS
    assert len(history.visits) >= KEPT_WHEN_FULL
    latest = f"model{MAX_VISITS * 4 - 1}"
    assert latest_by_model(history)[latest].after == 0.6


def test_the_last_word_of_each_model_counts():
    history = with_visit(KEYS[0], journey(20, models=2), "model0", 21, 0.7, 0.9, 200.0)
    found = latest_by_model(history)
    assert (found["model0"].before, found["model0"].after, found["model0"].visits) == (0.7, 0.9, 11)
    assert found["model1"].visits == 10


@pytest.mark.parametrize("confidence", [float("nan"), -1.0, 2.0, float("inf")])
def test_confidences_are_shares(confidence):
    check_history(with_visit(KEYS[0], VisitHistory(SHARD), "m", 1, confidence, 0.5, 1.0), SHARD, NOW)
    data = encode_history(replaced(journey(2), 1, before=confidence))
    with pytest.raises(ValueError, match="malformed"):
        check_history(decode_history(data), SHARD, NOW)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_history_or_a_value_error(data):
    with contextlib.suppress(ValueError):
        assert isinstance(decode_history(data), VisitHistory)


def test_too_large_a_history_is_not_looked_at():
    with pytest.raises(ValueError, match="allowed"):
        decode_history(bytes(MAX_BYTES + 1))
