"""Scores of samples: they follow their samples and tell what a visit changed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.shards.confidence import Scores, restored
from p2pnode.shards.sample_states import StateRules

KEYS = st.lists(st.integers(0, 40), unique=True, max_size=30)


def scores(keys: list[int]) -> Scores:
    """What they are tells whose they are."""
    found = Scores(len(keys))
    found.note(np.arange(len(keys)), np.array(keys, np.float32) / np.float32(64))
    found.end_round("model", StateRules())
    return found


@given(KEYS, KEYS)
def test_scores_follow_their_samples(old, new):
    after = scores(old).carried(np.array(old, np.uint64), np.array(new, np.uint64))
    expected = [key / 64 if key in old else np.nan for key in new]
    assert np.array_equal(after.confidence.values, np.array(expected, np.float32), equal_nan=True)
    assert np.array_equal(after.states.confidence, np.array(expected, np.float32), equal_nan=True)


@given(KEYS)
def test_saved_and_read_they_are_the_same(keys):
    one = scores(keys)
    again = restored(one.arrays())
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one._columns(), again._columns(), strict=True))
    assert again.states.models == one.states.models


@pytest.mark.parametrize("missing", ["0", "4", "models"])
def test_incomplete_ones_are_refused(missing):
    arrays = scores([1, 2, 3]).arrays()
    del arrays[missing]
    with pytest.raises(ValueError, match="confidences"):
        restored(arrays)


def test_a_visit_ends_once_enough_was_seen_and_then_the_next_begins():
    one, places = Scores(10), np.arange(5)
    one.note(np.array([0, 1]), np.array([0.2, 0.4], np.float32))
    assert one.end_visit(places, 0.8) is None
    one.note(places, np.array([0.6, 0.6, 0.6, 0.6, 0.6], np.float32))
    before, after = one.end_visit(places, 0.8) or (0.0, 0.0)
    assert before == pytest.approx((0.2 + 0.4 + 3 * 0.6) / 5) and after == pytest.approx((0.4 + 0.5 + 3 * 0.6) / 5)
    assert one.end_visit(places, 0.8) is None


def test_the_first_word_of_a_round_counts_for_the_model_it_began_with():
    one = Scores(2)
    one.note(np.array([0, 0, 1]), np.array([0.1, 0.9, 0.5], np.float32))
    one.end_round("model", StateRules())
    assert one.states.confidence[0] == pytest.approx(0.1)
