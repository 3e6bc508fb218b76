"""The length of a round: its mean, its bounds, and one random number each."""

from __future__ import annotations

import math
import random

import pytest

from p2pnode.training.rounds import local_steps, mean_steps, poisson


@pytest.mark.parametrize("lam", [1.0, 1.5, 10.0, 120.0, 900.0])
def test_the_mean_is_lambda(lam):
    rng = random.Random(3)
    drawn = [local_steps(lam, rng, cap=100_000) for _ in range(4000)]
    spread = math.sqrt(max(lam - 1.0, 1e-9) / len(drawn))
    assert abs(sum(drawn) / len(drawn) - lam) < 5 * spread + 1e-9
    assert min(drawn) >= 1


def test_the_variance_is_poissons():
    rng = random.Random(4)
    drawn = [local_steps(21.0, rng, cap=1000) for _ in range(4000)]
    mean = sum(drawn) / len(drawn)
    assert sum((k - mean) ** 2 for k in drawn) / len(drawn) == pytest.approx(20.0, rel=0.15)


def test_never_above_the_cap_and_never_below_one():
    rng = random.Random(5)
    assert {local_steps(50.0, rng, cap=7) for _ in range(100)} == {7}
    assert {local_steps(0.0, rng, cap=7) for _ in range(100)} == {1}


@pytest.mark.parametrize("lam", [0.5, 8.0, 5000.0])
def test_one_number_is_drawn_whatever_comes_out(lam):
    rng, other = random.Random(6), random.Random(6)
    local_steps(lam, rng, cap=10)
    other.random()
    assert rng.random() == other.random()


@pytest.mark.parametrize("mean", [0.0, 3.0, 499.0, 501.0, 5000.0])
def test_inversion_is_monotone_and_ends(mean):
    drawn = [poisson(mean, u) for u in (0.0, 1e-9, 0.1, 0.5, 0.9, 1 - 1e-9, 1 - 2**-53)]
    assert drawn == sorted(drawn)
    assert abs(poisson(mean, 0.5) - mean) <= 1


@pytest.mark.parametrize(
    ("speed", "expected"),
    [(0.0, 1.0), (float("nan"), 1.0), (-3.0, 1.0), (0.1, 1.0), (4.0, 20.0), (1e9, 300.0), (float("inf"), 1.0)],
)
def test_fast_nodes_do_more_steps_within_bounds(speed, expected):
    assert mean_steps(speed, round_seconds=5.0, cap=300) == expected
