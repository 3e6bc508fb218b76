"""κ: what a node keeps of its own unsent progress, by what others send."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.compression.weights import Floats
from p2pnode.merging.deltaset.retention import FIRST, MOST, Retention

SIZE = 200


def drawn(rng: np.random.Generator) -> Floats:
    return rng.normal(0, 1, SIZE).astype(np.float32)


def rounds(retention: Retention, count: int, agreement: float, weight: float = 0.5, seed: int = 1) -> list[float]:
    """κ after rounds in which others sent `agreement` times our residual, and something else besides."""
    rng, found = np.random.Generator(np.random.PCG64(seed)), []
    for _ in range(count):
        residual = drawn(rng)
        for _ in range(3):
            sent = np.float32(agreement) * residual + np.float32(1 - agreement) * drawn(rng)
            retention.heard(np.float32(weight) * sent, weight)
        retention.measure(residual, *retention.take())
        found.append(retention.kappa)
    return found


def test_who_learns_the_same_keeps_half_of_what_was_not_sent() -> None:
    assert rounds(Retention(SIZE), 20, 0.7)[-1] == MOST


def test_who_learns_something_else_starts_at_the_shared_weights() -> None:
    assert rounds(Retention(SIZE), 20, 0.0)[-1] == 0.0


def test_the_first_rounds_follow_at_once() -> None:
    found = rounds(Retention(SIZE), FIRST, 0.12)
    assert min(found[: FIRST - 1]) > 0.2
    assert found[FIRST - 1] == 0.0, "too little agreement to go on with it"


def test_agreement_once_seen_stays() -> None:
    retention = Retention(SIZE)
    rounds(retention, 8, 0.8)
    assert retention.agreed
    assert 0.0 < rounds(retention, 60, 0.05, seed=2)[-1] < MOST
    assert retention.agreed


def test_agreement_may_come_later() -> None:
    retention = Retention(SIZE)
    assert rounds(retention, 10, 0.0)[-1] == 0.0
    assert rounds(retention, 20, 0.9, seed=2)[-1] == MOST


def test_the_weight_of_entries_does_not_matter() -> None:
    assert rounds(Retention(SIZE), 3, 0.3, weight=2.0) == pytest.approx(rounds(Retention(SIZE), 3, 0.3, weight=0.125))


def test_without_entries_of_others_nothing_changes() -> None:
    retention = Retention(SIZE)
    before = rounds(retention, 5, 0.7)[-1]
    retention.measure(np.ones(SIZE, np.float32), *retention.take())
    assert retention.kappa == before
    assert Retention(SIZE).kappa == 0.0, "alone there is nobody to agree with"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32), st.floats(0, 64.0), st.floats(0, 64.0), st.floats(0.0, 4.0))
def test_whatever_others_send_it_stays_in_range_and_can_be_saved(
    seed: int, own: float, sent: float, weight: float
) -> None:
    """A hostile entry may claim any weight, zero too."""
    rng, retention = np.random.Generator(np.random.PCG64(seed)), Retention(SIZE)
    for _ in range(8):
        retention.heard(np.float32(sent) * drawn(rng), weight)
        retention.measure(np.float32(own) * drawn(rng), *retention.take())
        assert 0.0 <= retention.kappa <= MOST
    retention.heard(np.float32(sent) * drawn(rng), weight)
    again = Retention(SIZE)
    again.restore(retention.state())
    residual = drawn(rng)
    for one in (retention, again):
        one.measure(residual, *one.take())
    assert again.kappa == retention.kappa


@pytest.mark.parametrize("damage", ["shape", "number", "range", "heard"])
def test_a_damaged_state_is_refused(damage: str) -> None:
    state = Retention(SIZE).state()
    numbers, heard = state["retention"].copy(), state["heard"].copy()
    if damage == "shape":
        numbers = numbers[:2]
    elif damage == "number":
        numbers[1] = np.nan
    elif damage == "range":
        numbers[0] = 2.0
    else:
        heard = heard[:-1]
    with pytest.raises(ValueError, match="retention"):
        Retention(SIZE).restore({"retention": numbers, "heard": heard})
