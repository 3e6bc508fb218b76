"""Sampling: rare labels and received data more often, reserve less, and the expected gradient as if it were not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.training.batches import RECEIVED_TIMES, DrawnBatches, base_chances, sampling

CHANCES = st.lists(st.sampled_from([0.0, 0.1, 0.125, 0.25, 0.5, 1.0]), min_size=2, max_size=60)


@given(CHANCES, st.integers(0, 1000))
def test_the_reserve_does_not_show_in_any_mean(chances, seed):
    """The law of the unbiased gradient, exactly, for one number per sample."""
    thinning, rng = np.array(chances), np.random.default_rng(seed)
    if not thinning.any():
        return
    base, values = rng.uniform(0.1, 3, len(thinning)), rng.normal(size=len(thinning))
    how = sampling(base, thinning)
    unmasked = thinning > 0
    expected = (base * values)[unmasked].sum() / base[unmasked].sum()
    assert how.probability.sum() == pytest.approx(1)
    assert (how.probability * how.weight * values).sum() == pytest.approx(expected)
    assert (how.weight[~unmasked] == 0).all()


def test_drawn_batches_keep_the_law():
    rng = np.random.default_rng(1)
    thinning = rng.choice([0.0, 0.1, 0.5, 1.0], 64)
    values = torch.from_numpy(rng.normal(size=64))
    how = sampling(np.ones(64), thinning)
    batches = DrawnBatches(torch.arange(64), how, 16, seed=3)
    drawn = [batches.next() for _ in range(4 * 400)]
    mean = torch.stack([(weights * values[places]).mean() for places, weights in drawn]).mean()
    spread = values[thinning > 0].std() / 400**0.5
    assert abs(mean - values[thinning > 0].mean()) < 4 * spread


def test_four_draws_in_five_have_every_label_alike():
    labels = np.array([0] * 90 + [1] * 9 + [2])
    how = sampling(base_chances(labels, np.zeros(100, np.bool_)), np.ones(100))
    expected = [0.8 / 3 + 0.2 * share for share in (0.9, 0.09, 0.01)]
    assert [how.probability[labels == label].sum() for label in range(3)] == pytest.approx(expected)
    assert how.weight == pytest.approx(np.ones(100))


def test_without_labels_received_samples_are_drawn_three_times_as_often():
    received = np.array([True, False])
    how = sampling(base_chances(None, received), np.ones(2))
    assert how.probability[0] == pytest.approx(RECEIVED_TIMES * how.probability[1])


def test_with_equal_chances_a_pass_has_every_sample_once():
    how = sampling(np.ones(40), np.ones(40))
    batches = DrawnBatches(torch.arange(100, 140), how, 8, seed=1)
    passes = [sorted(place for _ in range(5) for place in batches.next()[0].tolist()) for _ in range(3)]
    assert passes == [list(range(100, 140))] * 3


@given(CHANCES, st.integers(1, 70), st.integers(0, 20))
def test_each_comes_as_often_as_it_should_and_the_position_says_all(chances, size, position):
    if not any(chances):
        return
    samples, how = torch.arange(len(chances)), sampling(np.ones(len(chances)), np.array(chances))
    one, other = DrawnBatches(samples, how, size, 5), DrawnBatches(samples, how, size, 5, position)
    for _ in range(position):
        one.next()
    assert torch.equal(one.next()[0], other.next()[0])
    whole = DrawnBatches(samples, how, 1, 5)
    counts = np.bincount([int(whole.next()[0]) for _ in chances], minlength=len(chances))
    assert (np.abs(counts - how.probability * len(chances)) < 1 + 1e-9).all()


def test_masked_samples_are_looked_at_seldom_and_teach_nothing():
    how = sampling(np.ones(10), np.array([0.0, 1.0] * 5))
    batches = DrawnBatches(torch.arange(10), how, 5, seed=2)
    drawn = [batches.next() for _ in range(400)]
    places, weights = torch.cat([where for where, _ in drawn]), torch.cat([weight for _, weight in drawn])
    masked = places % 2 == 0
    assert 0.05 < masked.float().mean() < 0.15
    assert (weights[masked] == 0).all() and (weights[~masked] > 1).all()


def test_nothing_to_draw_from_is_said():
    with pytest.raises(ValueError, match="all are masked"):
        sampling(np.ones(3), np.zeros(3))
    with pytest.raises(ValueError, match="probabilities"):
        DrawnBatches(torch.arange(2), sampling(np.ones(3), np.ones(3)), 1, 0)
