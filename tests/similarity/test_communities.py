"""Communities: the same view gives the same ones, they only grow together, and small changes move few."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.similarity.annealing import BRIDGE_RATES, ROUNDS_TO_ONE, bridge_rate, progress_of
from p2pnode.similarity.communities import MAX_VIEW, Communities, grow
from p2pnode.similarity.fingerprint import DIMENSIONS, Row
from p2pnode.wire.ids import PeerId
from tests.known import known
from tests.similarity.views import peer, planted, scattered

rows = st.lists(st.integers(-3, 3), min_size=8, max_size=8).filter(any)  # few values: many ties
views = st.lists(rows, min_size=1, max_size=12).map(
    lambda found: {peer(n): np.resize(np.array(values, np.int8), DIMENSIONS) for n, values in enumerate(found)}
)
shares = st.floats(0, 1)


def partition(communities: Communities) -> set[frozenset[PeerId]]:
    return {frozenset(communities.members(name)) for name in communities.firsts}


@given(views, shares, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_view_does_not_matter(view: dict[PeerId, Row], progress: float, rng: random.Random) -> None:
    shuffled = list(view.items())
    rng.shuffle(shuffled)
    one, other = grow(view).cut(progress), grow(dict(shuffled)).cut(progress)
    assert one.of == other.of
    assert one.height == other.height


@given(views, shares, shares)
@settings(max_examples=60, deadline=None)
def test_communities_cover_all_and_only_grow_together(view: dict[PeerId, Row], a: float, b: float) -> None:
    tree = grow(view)
    early, late = partition(tree.cut(min(a, b))), partition(tree.cut(max(a, b)))
    assert sum(map(len, early)) == len(view) == len(frozenset().union(*early))
    assert all(any(small <= large for large in late) for small in early)
    assert partition(tree.cut(1.0)) == {frozenset(view)}


@given(views)
@settings(max_examples=60, deadline=None)
def test_heights_are_those_of_a_tree(view: dict[PeerId, Row]) -> None:
    tree = grow(view)
    heights = tree.heights
    assert np.array_equal(heights, heights.T)
    assert (np.diagonal(heights) == 0).all()
    assert (heights[:, :, None] <= np.maximum(heights[:, None, :], heights.T[None, :, :]) + 1e-9).all(), "ultrametric"
    assert heights.max() == tree.top
    assert set(tree.leaves) == set(view)
    for one in view:
        for other in view:
            assert tree.height(one, other) == heights[tree.place[one], tree.place[other]]


def test_planted_communities_are_found_and_become_one() -> None:
    view = planted(5, 12)
    tree = grow(view)
    truth = {frozenset(list(view)[number::5]) for number in range(5)}
    counts = [len(partition(tree.cut(share))) for share in np.linspace(0, 1, 33)]
    assert counts[0] > 5, "many at first"
    assert counts[-1] == 1
    assert counts == sorted(counts, reverse=True)
    assert any(partition(tree.cut(share)) == truth for share in np.linspace(0, 1, 33))
    one, alike, unlike = peer(0), peer(5), peer(1)
    assert known(tree.height(one, alike)) < known(tree.height(one, unlike))
    assert tree.height(one, PeerId("unknown")) is None


def moved(before: Communities, after: Communities) -> float:
    """The share of peers in both that are with others than before, most of each community counting as staying."""
    stayed = 0
    for name in before.firsts:
        there = [after.of[member] for member in before.members(name) if member in after.of]
        stayed += max((there.count(new) for new in set(there)), default=0)
    return 1 - stayed / len(before.of.keys() & after.of.keys())


@pytest.mark.parametrize("progress", [0.25, 0.5, 0.75])
def test_small_changes_of_the_view_move_few(progress: float) -> None:
    whole = planted(6, 20, noise=0.4)
    before = grow(whole).cut(progress)
    shares_moved = []
    for seed in range(10):
        rng = random.Random(seed)
        fewer = {member: row for member, row in whole.items() if rng.random() > 0.05}
        shares_moved.append(moved(before, grow(fewer).cut(progress)))
    assert np.mean(shares_moved) < 0.05


def test_a_tenth_of_outliers_does_not_change_the_others_communities() -> None:
    view = planted(4, 18)
    liars = {PeerId(f"zz{name}"): -row for name, row in list(scattered(6, 3).items())}
    before, after = grow(view).cut(0.5), grow({**view, **liars}).cut(0.5)
    assert len(partition(before)) == 4
    assert partition(before) <= partition(after)


def test_small_views() -> None:
    assert grow({}).cut(0.3).of == {}
    assert len(partition(grow(scattered(1, 1)).cut(0.0))) == 1
    twins = {peer(0): np.ones(DIMENSIONS, np.int8), peer(1): np.ones(DIMENSIONS, np.int8)}
    assert partition(grow(twins).cut(0.0)) == {frozenset(twins)}
    with pytest.raises(ValueError, match="view"):
        grow(scattered(MAX_VIEW + 1, 1))


def test_models_that_fingerprints_cannot_tell_apart_are_one_community() -> None:
    """Three equal models would be cut at the median of noise, and each node would cut them in another way."""
    rng = np.random.default_rng(4)
    same = {peer(n): (100 + rng.integers(0, 3, DIMENSIONS)).astype(np.int8) for n in range(3)}
    other = {peer(3): np.where(np.arange(DIMENSIONS) % 2, 100, -100).astype(np.int8)}
    tree = grow({**same, **other})
    assert len(set(tree.merges[:2])) == 2, "there is noise"
    assert partition(tree.cut(0.0)) == {frozenset(same), frozenset(other)}


@given(st.floats(0, 1e5), st.floats(0, 1e5))
def test_annealing_rises_from_start_to_end(one: float, other: float) -> None:
    early, late = sorted((one, other))
    for aim in ("shared", "own"):
        assert 0 <= progress_of(early, aim) <= progress_of(late, aim) <= 1
        assert progress_of(ROUNDS_TO_ONE[aim], aim) == 1
    assert progress_of(early, "own") <= progress_of(early, "shared")
    low, high = BRIDGE_RATES
    assert low <= bridge_rate(progress_of(early)) <= bridge_rate(progress_of(late)) <= high
    assert (bridge_rate(0), bridge_rate(1)) == BRIDGE_RATES
