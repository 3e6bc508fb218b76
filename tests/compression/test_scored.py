"""Scores: influence finds slope and curvature, importance learns what goes on, each factor can be off."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.compression.delta import Indices
from p2pnode.compression.selector import Budget, SelectorSetup
from p2pnode.compression.selectors.importance import HISTORY, LearnedImportance
from p2pnode.compression.selectors.influence import LOOK_STEPS, SHARE, LossInfluence
from p2pnode.compression.selectors.layer_scores import MAX_LAYERS, LayerScores
from p2pnode.compression.selectors.magnitude import largest
from p2pnode.compression.selectors.scored import Scored
from p2pnode.compression.weights import Floats, Units, to_units

SIZE = 400
EVERYWHERE = np.arange(SIZE, dtype=np.uint32)


def quadratic(seed: int) -> tuple[Floats, Floats]:
    """Centre and curvature of a bowl, a thousandfold steeper in some directions than in others."""
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1, SIZE).astype(np.float32), (10.0 ** rng.uniform(-3, 0, SIZE)).astype(np.float32)


def looked(influence: LossInfluence, weights: Floats, centre: Floats, curvature: Floats, times: int = 1) -> None:
    for number in range(times):
        above, below = influence.points(weights, number)
        influence.note(curvature * (above - centre), curvature * (below - centre))


# ---- influence ----


@given(st.integers(0, 50))
def test_a_bowl_shows_its_slope_and_its_curvature(seed: int) -> None:
    """Where curvature is diagonal, one look is exact: the loss changes by |g·v| + ½·h·v²."""
    centre, curvature = quadratic(seed)
    weights = np.ones(SIZE, np.float32)
    influence = LossInfluence(SIZE, seed)
    looked(influence, weights, centre, curvature)
    change = np.full(SIZE, 0.5, np.float32)
    exact = np.abs(curvature * (weights - centre)) + curvature * change / 2
    np.testing.assert_allclose(influence.at(EVERYWHERE, change), exact / exact.mean(), rtol=0.02, atol=1e-3)


def test_curvature_that_mixes_weights_averages_out() -> None:
    """Off the diagonal, single looks are noisy and their rolling average is not."""
    rng = np.random.default_rng(4)
    mixed = rng.normal(0, 0.05, (SIZE, SIZE))
    diagonal = np.linspace(0.2, 2.0, SIZE)
    hessian = (mixed + mixed.T) / 2
    np.fill_diagonal(hessian, diagonal)
    influence, errors = LossInfluence(SIZE, 1), []
    for number in range(12):
        above, below = influence.points(np.zeros(SIZE, np.float32) + 1, number)
        influence.note((hessian @ (above - 1)).astype(np.float32), (hessian @ (below - 1)).astype(np.float32))
        estimate = influence.at(EVERYWHERE, np.ones(SIZE, np.float32))
        errors.append(float(np.abs(estimate - diagonal / diagonal.mean()).mean()))
    assert errors[-1] < 0.75 * errors[0]


def test_before_the_first_look_all_are_alike_and_a_broken_look_is_passed_over() -> None:
    influence = LossInfluence(SIZE, 1)
    assert (influence.at(EVERYWHERE, np.ones(SIZE, np.float32)) == 1).all()
    influence.points(np.ones(SIZE, np.float32), 5)
    influence.note(np.full(SIZE, np.nan, np.float32), np.ones(SIZE, np.float32))
    assert influence.looks == 0
    assert (influence.at(EVERYWHERE, np.ones(SIZE, np.float32)) == 1).all()
    assert len(influence.at(np.empty(0, np.uint32), np.empty(0, np.float32))) == 0


@given(st.lists(st.integers(1, 64), min_size=1, max_size=80))
def test_looks_never_cost_more_than_their_share(rounds: list[int]) -> None:
    influence, done, looks = LossInfluence(3, 1), 0, 0
    for steps in rounds:
        done += steps
        if influence.due(done):
            influence.points(np.ones(3, np.float32), done)
            looks += 1
        assert looks * LOOK_STEPS <= SHARE * done + 1e-9


def test_the_average_follows_the_training() -> None:
    centre, curvature = quadratic(1)
    influence = LossInfluence(SIZE, 1)
    looked(influence, np.ones(SIZE, np.float32), centre, curvature, 3)
    looked(influence, np.ones(SIZE, np.float32), centre, curvature[::-1].copy(), 60)
    exact = np.abs(curvature[::-1] * (1 - centre))
    estimate = influence.at(EVERYWHERE, np.zeros(SIZE, np.float32))
    np.testing.assert_allclose(estimate, exact / exact.mean(), rtol=0.1, atol=0.03)


def test_gradients_of_the_training_count_between_looks() -> None:
    influence, slope = LossInfluence(SIZE, 1), np.linspace(-1, 3, SIZE).astype(np.float32)
    influence.follow(slope)
    estimate = influence.at(EVERYWHERE, np.ones(SIZE, np.float32))
    np.testing.assert_allclose(estimate, np.abs(slope) / np.abs(slope).mean(), rtol=1e-4)
    influence.follow(np.full(SIZE, np.inf, np.float32))
    assert np.array_equal(estimate, influence.at(EVERYWHERE, np.ones(SIZE, np.float32)))


# ---- importance ----


def persistent(rng: np.random.Generator, drift: Floats) -> Floats:
    """Progress of coordinates of which some drift and the others shake."""
    shake = rng.normal(0, 1, SIZE)
    return (np.where(drift != 0, drift + 0.2 * shake, shake) * 1e-3).astype(np.float32)


def test_networks_learn_which_coordinates_go_on() -> None:
    """Two layers; in each, every third coordinate keeps its direction and the rest are noise of the same size."""
    rng = np.random.default_rng(7)
    drift = np.where(np.arange(SIZE) % 3 == 0, rng.choice([-1.0, 1.0], SIZE), 0.0).astype(np.float32)
    importance = LearnedImportance([150, 250], seed=1)
    residual = np.zeros(SIZE, np.int32)
    for _ in range(120):
        progress = persistent(rng, drift)
        residual = (0.5 * residual).astype(np.int32) + to_units(progress)
        importance.note(progress)
        judged = importance.at(EVERYWHERE, residual)
    assert importance.lessons > 100
    assert ((judged > 0) & (judged < 1)).all()
    for layer in (slice(0, 150), slice(150, SIZE)):
        steady = drift[layer] != 0
        assert judged[layer][steady].mean() > judged[layer][~steady].mean() + 0.15


def test_nothing_learned_calls_everything_half_important() -> None:
    importance = LearnedImportance([SIZE], seed=1)
    assert (importance.at(EVERYWHERE, np.ones(SIZE, np.int32)) == 0.5).all()


def test_the_history_is_bounded_and_lessons_are_small() -> None:
    rng, lessons = np.random.default_rng(1), []
    importance = LearnedImportance([10, SIZE - 10], 1, background=lambda work: lessons.append(work))
    for _ in range(3 * HISTORY):
        importance.note(rng.normal(0, 1e-3, SIZE).astype(np.float32))
        importance.at(EVERYWHERE[::2], rng.integers(-99, 99, SIZE // 2).astype(np.int32))
    kept = sum(past.nbytes for past in importance._past)
    assert kept == HISTORY * SIZE
    assert importance.lessons == 0, "lessons wait for whoever runs them"
    for work in lessons:
        work()
    assert importance.lessons == 2 * len(lessons)


@given(st.integers(0, 20))
def test_the_same_seed_learns_the_same(seed: int) -> None:
    judgements = []
    for _ in range(2):
        rng, importance = np.random.default_rng(seed), LearnedImportance([SIZE], seed)
        for _ in range(4):
            importance.note(rng.normal(0, 1e-3, SIZE).astype(np.float32))
            judged = importance.at(EVERYWHERE, rng.integers(-999, 999, SIZE).astype(np.int32))
        judgements.append(judged)
    assert np.array_equal(judgements[0], judgements[1])


# ---- layer scores ----


@given(st.lists(st.integers(1, 5), min_size=1, max_size=700), st.integers(0, 9))
def test_layer_scores_are_a_byte_each_and_bounded(layers: list[int], seed: int) -> None:
    scores = LayerScores(layers)
    places = np.arange(sum(layers), dtype=np.uint32)
    encoded = scores.encode(places, np.random.default_rng(seed).uniform(0, 1, len(places)).astype(np.float32))
    assert 1 <= len(encoded) <= min(len(layers), MAX_LAYERS)
    scores.hear(encoded)
    assert scores.heard == 1
    assert np.isfinite(scores.at(places)).all()


def test_partners_scores_come_through_within_a_byte() -> None:
    scores = LayerScores([10, 30])
    places = np.arange(40, dtype=np.uint32)
    values = np.repeat([3.0, 1 / 3], [10, 30]).astype(np.float32)  # 1 on average
    scores.hear(scores.encode(places, values))
    np.testing.assert_allclose(scores.at(places), values, rtol=0.03)


@pytest.mark.parametrize("encoded", [b"", b"\x00", bytes(41), bytes(300)])
def test_scores_that_do_not_fit_change_nothing(encoded: bytes) -> None:
    scores = LayerScores([10, 30])
    scores.hear(encoded)
    assert scores.heard == 0
    assert (scores.at(np.arange(40, dtype=np.uint32)) == 1).all()


def test_scores_of_nothing_are_average() -> None:
    scores = LayerScores([10, 30])
    assert scores.encode(np.arange(4, dtype=np.uint32), np.zeros(4, np.float32)) == bytes([128, 128])


# ---- the product ----


def scored(settings: dict[str, float], *layers: int) -> Scored:
    return Scored(SelectorSetup(layers or (SIZE,), 1, settings))


def select(selector: Scored, residual: Units, count: int) -> Indices:
    return selector.select(residual, np.zeros(SIZE, np.float32), Budget(count, SIZE), 1.0)


@given(st.integers(0, 50), st.integers(1, 80))
def test_with_every_factor_off_it_is_plain_magnitude(seed: int, k: int) -> None:
    residual = np.random.default_rng(seed).integers(-100_000, 100_000, SIZE).astype(np.int32)
    assert np.array_equal(select(scored({}), residual, k), largest(residual, k))


def test_influence_decides_between_equal_magnitudes_and_the_threshold_drops() -> None:
    curvature = np.where(np.arange(SIZE) % 2 == 0, 1.0, 0.01).astype(np.float32)
    residual = np.full(SIZE, 1000, np.int32)
    for name, value, count in (("influence", 1.0, 60), ("least_influence", 0.5, 200)):
        selector = scored({name: value})
        assert selector.gradients is not None
        looked(selector.gradients, np.ones(SIZE, np.float32), np.zeros(SIZE, np.float32), curvature)
        indices = select(selector, residual, count)
        assert len(indices) == min(count, SIZE // 2)
        assert (indices % 2 == 0).all()


def test_the_hint_says_where_the_scores_are() -> None:
    residual = np.ones(SIZE, np.int32)
    residual[:100] = 1000
    selector = scored({"layer_scores": 1.0}, 100, 300)
    select(selector, residual, 50)
    first, second = selector.hint
    assert first > 128 > second
