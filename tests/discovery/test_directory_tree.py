"""The directory tree: everybody has one place, and places never overflow."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from p2pnode.discovery.directory_tree import key_at, next_depth, path_elsewhere, path_of, should_rise, tree_goes_on
from p2pnode.wire.ids import Identity
from p2pnode.wire.records import MAX_RECORDS_PER_KEY, RecordStore, sign_record, why_refused


def test_a_peers_path_grows_at_its_end_only() -> None:
    assert path_of("peer", 0) == ""
    for depth in range(1, 24):
        assert path_of("peer", depth).startswith(path_of("peer", depth - 1))
        assert len(path_of("peer", depth)) == depth


def test_every_key_of_the_tree_is_a_known_key() -> None:
    who = Identity(b"a" * 32)
    for depth in (0, 1, 24):
        assert not why_refused(sign_record(who, key_at("a" * 26, path_of("p", depth)), b"", 1.0), 0.0)
    assert RecordStore().find(key_at("t", ""), 0.0) == []


def test_one_goes_deeper_when_two_storers_or_most_are_full() -> None:
    assert next_depth(0, []) == 0
    assert next_depth(0, ["stored"]) == 0
    assert next_depth(0, ["full", "stored", "stored", "stored"]) == 0, "one storer may lie"
    assert next_depth(0, ["full", "full", "stored", "stored", "stored"]) == 1
    assert next_depth(3, ["full"]) == 4
    assert next_depth(24, ["full"]) == 24


def test_one_rises_from_an_empty_place_but_never_above_the_root() -> None:
    assert not should_rise(0, 0)
    assert should_rise(2, 3)
    assert not should_rise(2, MAX_RECORDS_PER_KEY)


def test_a_small_swarm_is_one_key() -> None:
    assert not tree_goes_on(0, 100)
    assert tree_goes_on(0, MAX_RECORDS_PER_KEY)
    assert tree_goes_on(1, 0)


@given(st.integers(0, 12), st.integers())
def test_elsewhere_is_in_the_tree(depth: int, seed: int) -> None:
    path = path_elsewhere(depth, random.Random(seed))
    assert len(path) <= depth + 1
    assert set(path) <= {"0", "1"}


def test_elsewhere_reaches_every_key_alike() -> None:
    rng = random.Random(1)
    seen = Counter(path_elsewhere(1, rng) for _ in range(7000))
    assert len(seen) == 7
    assert max(seen.values()) < 1.5 * min(seen.values())
