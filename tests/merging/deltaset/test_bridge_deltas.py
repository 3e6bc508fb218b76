"""Bridges and unions."""

from __future__ import annotations

import numpy as np
import pytest

from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.weights import MAX_UNITS, Units
from p2pnode.merging.deltaset.bridges import (
    COARSE,
    bridge_delta,
    bridge_entries,
    latest,
    most_changed,
    rounds_since,
    sample,
    union_delta,
)
from p2pnode.merging.deltaset.chains import KEPT
from p2pnode.merging.deltaset.entry import BRIDGE
from p2pnode.merging.deltaset.set import apply
from tests.merging.deltaset.chains import entry, set_of

RNG = np.random.default_rng(8)
THEN = RNG.integers(-(1 << 20), 1 << 20, 10_000).astype(np.int32)
NOW = (THEN + RNG.integers(-900, 900, 10_000)).astype(np.int32)
THEIRS = (NOW + RNG.integers(-5000, 5000, 10_000)).astype(np.int32)


def deltas(change: Units) -> list[SparseDelta]:
    """A change as two entries that overlap."""
    half = change // 2
    every = np.arange(len(change), dtype=np.uint32)
    return [SparseDelta(len(change), every, half), SparseDelta(len(change), every[5:], (change - half)[5:])]


def test_what_changed_most_is_sent() -> None:
    places = most_changed(len(NOW), deltas(NOW - THEN), 100)
    change = NOW - THEN
    change[:5] //= 2  # of which the second entry has nothing
    assert np.array_equal(places, np.sort(np.argsort(-np.abs(change), kind="stable")[:100]))


@pytest.mark.parametrize(("size", "most", "count"), [(6, 1, 1), (5_000, 500, 256), (10**6, 10**5, 2 * 10**4)])
def test_a_bridge_is_a_share_of_the_model_and_fits_an_entry_and_a_call(size: int, most: int, count: int) -> None:
    assert bridge_entries(size, most) == count
    assert bridge_entries(10**9, 10**8) * 6 < 1 << 20


def test_a_bridge_goes_about_half_the_way_where_they_changed() -> None:
    places = most_changed(len(NOW), deltas(NOW - THEN), 200)
    mine = NOW.copy()
    apply(mine, bridge_delta(NOW[places], sample(THEIRS, places)))
    before = np.linalg.norm((THEIRS - NOW)[places].astype(float))
    assert 0.45 < np.linalg.norm((THEIRS - mine)[places].astype(float)) / before < 0.55
    elsewhere = np.setdiff1d(np.arange(len(NOW)), places)
    assert np.array_equal(mine[elsewhere], NOW[elsewhere])


def test_what_is_sent_of_weights_is_near_them_and_within_the_grid() -> None:
    edge = np.array([MAX_UNITS, -MAX_UNITS, MAX_UNITS - 1, 0, 127, -129], np.int32)
    sampled = sample(edge, np.arange(6, dtype=np.uint32)).values
    assert (np.abs(sampled - edge) <= COARSE // 2).all()
    assert not (sampled % COARSE).any()
    assert np.abs(sampled).max() == MAX_UNITS


def test_a_union_moves_the_larger_circle_by_the_smaller_ones_share() -> None:
    step = union_delta(THEIRS, NOW, 2, 6)
    assert step.dense
    assert len(np.unique(np.abs(step.values[:8192]))) <= 8
    np.testing.assert_allclose(step.values, (THEIRS - NOW) / 4, atol=120)


def test_the_log_knows_how_long_ago_the_last_bridge_was() -> None:
    other = b"o" * 32
    first = entry(0, None, 1, kind=BRIDGE, other=other)
    then = entry(0, first, 2)
    third = entry(1, None, 3)
    log = set_of([first, then, third]).log
    assert rounds_since(log, other) == 1
    assert rounds_since(log, b"p" * 32) == KEPT
    assert rounds_since(set_of([first]).log, other) == 0
    assert latest(log, 1) == [then, third] or latest(log, 1) == [third, then]
    assert len(latest(log, 9)) == 3
