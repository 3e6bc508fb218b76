"""States of data: up by many models' trust, down by forgetting, aside by many models' failure; always with a reason."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.shards.confidence import Confidences
from p2pnode.shards.sample_states import (
    ACTIVE,
    LEAST_CHANCE,
    MAX_MODELS,
    QUARANTINED,
    RESERVE,
    RETIRED,
    RETIRED_LEVEL,
    SampleStates,
    StateRules,
    age_of_round,
    chances,
    drawn_states,
    reason,
    scored,
    state_codes,
    untouched,
)

RULES = StateRules()


def judged(states: SampleStates, models: str, shares: list[float], usual: float = 0.8) -> SampleStates:
    """All data scored by one model after another."""
    places = np.arange(len(shares))
    for model in models:
        states = scored(states, model, places, np.array(shares, np.float32), usual, RULES)
    return states


def codes(states: SampleStates) -> list[int]:
    return state_codes(states).tolist()


def test_reserve_needs_different_models_not_one_model_often():
    assert codes(judged(untouched(1), "aaaaaa", [0.98])) == [ACTIVE]
    assert codes(judged(untouched(1), "ab", [0.98])) == [ACTIVE]
    in_reserve = judged(untouched(1), "abc", [0.98])
    assert codes(in_reserve) == [RESERVE]
    assert reason(in_reserve, 0) == "reserve: 0.98 by 3 models"


def test_more_trust_samples_less_until_retired_and_forgetting_brings_back():
    states, seen = judged(untouched(1), "ab", [0.99]), []
    for model in "cabc":
        states = judged(states, model, [0.99])
        seen.append(float(chances(states)[0]))
    assert seen == pytest.approx([0.5, 0.25, 0.125, LEAST_CHANCE])
    assert codes(states) == [RETIRED]
    assert codes(judged(states, "a", [0.8])) == [RETIRED], "a little less sure is not forgotten"
    forgotten = judged(states, "a", [0.3])
    assert codes(forgotten) == [ACTIVE] and chances(forgotten)[0] == 1


def test_quarantine_needs_three_models_that_have_learnt_the_rest():
    assert codes(judged(untouched(2), "ab", [0.02, 0.9])) == [ACTIVE, ACTIVE]
    assert codes(judged(untouched(2), "abc", [0.02, 0.9], usual=0.15)) == [ACTIVE, ACTIVE], "they learnt nothing yet"
    background = judged(untouched(2), "abc", [0.02, 0.9])
    assert codes(background) == [QUARANTINED, ACTIVE]
    assert reason(background, 0) == "quarantined: 0.02 by 3 models"
    assert chances(background).tolist() == [0, 1]


def test_failures_among_successes_are_not_enough():
    mixed = judged(judged(untouched(1), "abcdef", [0.6]), "xyz", [0.1])
    assert np.bitwise_count(mixed.failing[0]) == 3 and codes(mixed) == [ACTIVE]
    assert codes(judged(mixed, "uvw", [0.02])) == [QUARANTINED]


def test_one_model_that_learns_it_brings_a_datum_back():
    background = judged(untouched(1), "abc", [0.02])
    assert codes(judged(background, "d", [0.3])) == [QUARANTINED]
    back = judged(background, "d", [0.97])
    assert codes(back) == [ACTIVE]
    assert codes(judged(back, "a", [0.02])) == [ACTIVE], "d still knows it"


def test_what_one_model_is_sure_of_is_never_put_aside():
    assert codes(judged(judged(untouched(1), "d", [0.97]), "abc", [0.02])) == [ACTIVE]


def test_only_the_data_scored_change():
    states = scored(untouched(3), "a", np.array([1]), np.array([0.5], np.float32), 0.8, RULES)
    assert np.isnan(states.confidence[[0, 2]]).all() and states.confidence[1] == np.float32(0.5)
    assert reason(states, 0) == "active: not seen yet"


def test_the_state_shown_is_the_state_drawn():
    """Four levels up is retired; each chance stands for one state."""
    states = untouched(4)
    states.level[:] = [0, 1, RETIRED_LEVEL, RETIRED_LEVEL]
    states.quarantined[:] = [False, False, False, True]
    assert drawn_states(chances(states)).tolist() == state_codes(states).tolist()
    assert drawn_states(np.ones(2, np.float32)).tolist() == [ACTIVE, ACTIVE]


@given(st.integers(1, 2000), st.integers(1, 200_000))
def test_weights_that_count_as_different_models_are_rounds_and_parts_of_a_pass_apart(drawn, samples):
    rounds = math.ceil(1 / age_of_round(drawn, samples) - 1e-9)
    assert rounds >= 4 and rounds * drawn >= samples / 4 - 1e-6
    assert rounds == 4 or (rounds - 1) * drawn < samples / 4 + 1e-6, "and no further"


def test_more_models_than_places_forget_the_earliest():
    states = judged(untouched(1), "xyz", [0.02])
    for number in range(MAX_MODELS):
        states = scored(states, f"m{number}", np.array([0]), np.array([0.3], np.float32), 0.8, RULES)
    assert len(states.models) == MAX_MODELS and states.failing[0] == 0 and "x" not in states.models


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 1, width=32), st.floats(0, 1)), max_size=30))
def test_whatever_models_say_states_stay_sound(verdicts):
    states = untouched(1)
    for model, share, usual in verdicts:
        before, copy = states, states.confidence.copy()
        states = scored(states, model, np.array([0]), np.array([share], np.float32), usual, RULES)
        assert np.array_equal(before.confidence, copy, equal_nan=True), "scoring makes a new value"
    assert not (states.sure & states.failing).any(), "no model is both"
    assert 0 <= chances(states)[0] <= 1 and (chances(states)[0] == 0) == bool(states.quarantined[0])
    if states.level[0] > 0:
        assert verdicts[-1][1] >= RULES.forgotten
    if states.quarantined[0]:
        assert np.bitwise_count(states.failing[0]) >= 1 and states.confidence[0] < RULES.forgotten


class TestConfidence:
    def test_it_smooths(self):
        seen = Confidences(4)
        seen.note(np.array([0, 2]), np.array([0.5, 1.0], np.float32))
        seen.note(np.array([0]), np.array([1.0], np.float32))
        assert seen.values[[0, 2]].tolist() == [0.75, 1.0] and np.isnan(seen.values[[1, 3]]).all()
        assert seen.mean(np.array([0, 1])) == 0.75 and np.isnan(seen.mean(np.array([1, 3])))

    def test_what_is_no_number_is_passed_over(self):
        seen = Confidences(3)
        seen.note(np.arange(3), np.array([np.nan, np.inf, 0.5], np.float32))
        assert np.isnan(seen.values[:2]).all() and seen.values[2] == 0.5
