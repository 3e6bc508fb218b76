"""γ and density that find themselves: within their bounds whatever comes, in the right direction, and settling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.weights import Floats, to_units
from p2pnode.merging.deltaset.steering import (
    BEGIN,
    EVEN_BETA,
    EVEN_SHARE,
    FEW,
    LONG,
    MANY,
    MOST,
    SAMPLE,
    SHORT,
    Steering,
)

SIZE = 400
GROUP = 8
LEAST = FEW * (GROUP - 1)


def delta(values: Floats) -> SparseDelta:
    units = to_units(values)
    places = np.flatnonzero(units).astype(np.uint32)
    return SparseDelta(len(values), places, units[places])


def nothing(size: int = SIZE) -> SparseDelta:
    return delta(np.zeros(size, np.float32))


def descend(steering: Steering, curvature: float, effect: float, rounds: int, noise: float = 0.0) -> list[float]:
    """An author on a parabola: local steps go down it, and the others' entries by `effect` · γ as far; its γ's."""
    rng = np.random.Generator(np.random.PCG64(1))
    here = (rng.normal(0, 1, SIZE) ** 3).astype(np.float32)  # few coordinates hold most of it, as with SGD
    found = []
    for _ in range(rounds):
        progress = (-curvature * here + noise * rng.normal(0, 1, SIZE) ** 3).astype(np.float32)
        steering.measure(here, progress, GROUP)
        steering.published(nothing())
        here = here + np.float32(effect * steering.gamma) * progress
        found.append(steering.gamma)
    return found


def test_too_short_steps_grow_and_carry_more() -> None:
    steering = Steering(SIZE)
    assert descend(steering, 0.05, 0.5, 60)[-1] == MOST
    assert steering.share == MANY
    assert 0.9 < steering.left <= 1.0
    assert steering.beta == SHORT


def test_steps_to_the_other_wall_shrink_and_carry_less() -> None:
    steering = Steering(SIZE)
    steering.gamma = 2.0
    assert descend(steering, 0.9, 1.1, 60, noise=0.01)[-1] == 1.0
    assert steering.left < 0
    assert steering.share == LEAST
    assert steering.beta == LONG


def test_the_weights_stay_within_reach_of_local_steps() -> None:
    steering = Steering(SIZE)
    gamma = descend(steering, 0.01, 1.0, 100)[-1]
    assert steering.left > 0.9, "the slope alone would have it grow on"
    assert 1.2 < gamma < 1.8


@pytest.mark.parametrize(("curvature", "noise"), [(0.05, 0.0), (0.3, 0.0), (0.3, 0.1), (0.6, 0.05)])
def test_it_settles(curvature: float, noise: float) -> None:
    last = descend(Steering(SIZE), curvature, 0.8, 200, noise)[-60:]
    assert max(last) / min(last) < 1.25


def test_own_entries_are_no_witness() -> None:
    """Only others' steps are judged: with none of them nothing changes, wherever own entries take the weights."""
    steering, here = Steering(SIZE), np.zeros(SIZE, np.float32)
    for number in range(10):
        steering.measure(here, np.full(SIZE, 0.25, np.float32), GROUP)
        own = np.zeros(SIZE, np.float32)
        own[number::7] = 0.5
        steering.published(delta(own))
        here = here + own
    assert (steering.gamma, steering.share, steering.left) == (1.0, BEGIN, 1.0)


def test_a_round_that_was_not_published_is_not_judged() -> None:
    steering, rng = Steering(SIZE), np.random.Generator(np.random.PCG64(3))
    for _ in range(5):
        begun, progress = rng.normal(0, 1, (2, SIZE)).astype(np.float32)
        steering.measure(begun, progress, GROUP)
    assert (steering.gamma, steering.share) == (1.0, BEGIN)


def test_large_models_are_sampled() -> None:
    size = 10 * SAMPLE
    steering, here = Steering(size), np.zeros(size, np.float32)
    for _ in range(5):
        steering.measure(here[steering.places], np.ones(len(steering.places), np.float32), GROUP)
        steering.published(nothing(size))
        here = here + 1
    assert steering.gamma > 1.0
    assert sum(array.nbytes for array in steering.state().values()) < 16 * SAMPLE


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 32), st.floats(0, 1e6), st.floats(0, 1e6))
def test_whatever_happens_it_stays_in_range_and_can_be_saved(seed: int, step: float, size: float) -> None:
    rng = np.random.Generator(np.random.PCG64(seed))
    steering = Steering(SIZE)
    for _ in range(20):
        begun, progress = (np.array([[step], [size]]) * rng.normal(0, 1, (2, SIZE))).astype(np.float32)
        steering.measure(begun, progress, GROUP)
        steering.published(nothing())
        assert 1.0 <= steering.gamma <= MOST
        assert LEAST <= steering.share <= MANY
    again = Steering(SIZE)
    again.restore(steering.state())
    more = rng.normal(0, 1, SIZE).astype(np.float32)
    for one in (steering, again):
        one.measure(more, more, GROUP)
    assert again.gamma == steering.gamma
    assert again.share == steering.share


@pytest.mark.parametrize("damage", ["shape", "number", "range", "sample"])
def test_a_damaged_state_is_refused(damage: str) -> None:
    state = Steering(SIZE).state()
    numbers, sampled = state["steering"].copy(), state["steered"]
    if damage == "shape":
        numbers = numbers[:3]
    elif damage == "number":
        numbers[2] = np.nan
    elif damage == "range":
        numbers[0] = 50.0
    else:
        sampled = np.zeros((3, SIZE + 1), np.float32)
    with pytest.raises(ValueError, match="steering"):
        Steering(SIZE).restore({"steering": numbers, "steered": sampled})


def test_progress_that_is_spread_evenly_keeps_its_density_and_fades_sooner() -> None:
    """As AdamW's does: there few coordinates never hold much of it, whatever the slopes say."""
    steering, rng = Steering(SIZE), np.random.Generator(np.random.PCG64(4))
    here = np.zeros(SIZE, np.float32)
    for _ in range(40):
        made = (rng.choice([-1.0, 1.0], SIZE) * rng.uniform(0.5, 1.0, SIZE)).astype(np.float32)
        steering.measure(here, made, GROUP)
        steering.published(nothing())
        here = here + rng.normal(0, 1, SIZE).astype(np.float32)
    assert steering.even
    assert steering.density(GROUP) == pytest.approx(EVEN_SHARE / (GROUP - 1))
    assert steering.beta == EVEN_BETA
    assert steering.step(GROUP) == MOST
    assert steering.step(1) == 1.0, "a node alone must not add twice what it learned"


def test_what_comes_in_is_shared_out_among_the_others() -> None:
    steering = Steering(SIZE)
    assert steering.density(1) == steering.density(2) == BEGIN
    assert steering.density(8) == pytest.approx(BEGIN / 7)


@pytest.mark.parametrize("group", [2, 4, 8])
def test_an_entry_carries_least_the_same_in_any_circle(group: int) -> None:
    steering, here = Steering(SIZE), np.ones(SIZE, np.float32)
    way = np.where(np.arange(SIZE) % 10, 0.0, 1.0).astype(np.float32)
    for number in range(80):
        steering.measure(here, np.float32((-1.0) ** number) * way, group)
        steering.published(nothing())
        here = here + np.float32((-1.0) ** number) * way
    assert steering.density(group) == pytest.approx(FEW)
