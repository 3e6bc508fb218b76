"""The checksum of A: it follows every entry, in every order, and shows every single change."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from p2pnode.compression.delta import SparseDelta
from p2pnode.merging.deltaset import checksum
from p2pnode.merging.deltaset.set import apply, unapply
from tests.compression.dense import dense_delta
from tests.merging.deltaset.chains import LINEAGE, SIZE, chain, set_of

FEW = settings(max_examples=60, deadline=None)
EVERYTHING = st.integers(-(1 << 31), (1 << 31) - 1)
WEIGHTS = arrays(np.int32, SIZE, elements=EVERYTHING)
KEYS = st.integers(0, (1 << 64) - 1)
ENTRIES = [one for author in range(3) for one in chain(author, 5)]
BRANCH = chain(1, 3, seed=9, after=chain(1, 3)[2])


@st.composite
def deltas(draw: st.DrawFn) -> SparseDelta:
    places = sorted(draw(st.sets(st.integers(0, SIZE - 1))))
    values = draw(st.lists(st.integers(-(1 << 30), 1 << 30), min_size=len(places), max_size=len(places)))
    return SparseDelta(SIZE, np.array(places, np.uint32), np.array(values, np.int32))


@FEW
@given(WEIGHTS, st.lists(deltas(), max_size=4), KEYS, st.randoms())
def test_it_is_linear_also_where_the_grid_wraps_around(
    units: npt.NDArray[np.int32], changes: list[SparseDelta], key: int, rng: random.Random
) -> None:
    expected, after = checksum.of_weights(units, key), units.copy()
    for change in rng.sample(changes, len(changes)):
        expected = checksum.added(expected, checksum.of_delta(change, key))
    for change in changes:
        apply(after, change)
    assert checksum.of_weights(after, key) == expected
    for change in changes:
        unapply(after, change)
        expected = checksum.less(expected, checksum.of_delta(change, key))
    assert expected == checksum.of_weights(units, key)


@FEW
@given(WEIGHTS, st.integers(0, SIZE - 1), EVERYTHING.filter(bool), KEYS)
def test_every_single_change_shows(units: npt.NDArray[np.int32], place: int, change: int, key: int) -> None:
    after = units.copy()
    after[place : place + 1] += np.int32(change)
    assert checksum.of_weights(after, key) != checksum.of_weights(units, key)


@FEW
@given(arrays(np.int32, SIZE, elements=st.integers(-1000, 1000)), st.data(), KEYS)
def test_weights_in_other_places_are_other_weights(units: npt.NDArray[np.int32], data: st.DataObject, key: int) -> None:
    order = data.draw(st.permutations(range(SIZE)))
    same = np.array_equal(units[order], units)
    assert (checksum.of_weights(units[order], key) == checksum.of_weights(units, key)) == same


def test_it_is_the_same_in_parts_of_any_size_as_number_by_number() -> None:
    units = np.random.default_rng(1).integers(-(1 << 31), 1 << 31, 3 * checksum._CHUNK + 7).astype(np.int32)
    key = checksum.key_of(LINEAGE)
    low = high = 0
    for place, value in enumerate(units.tolist()):
        factor = splitmix64(place * 0x9E3779B97F4A7C15 + key)
        low, high = low + value * (factor & 0xFFFFFFFF | 1), high + value * (factor >> 32)
    assert checksum.of_weights(units, key) == (high & 0xFFFFFFFF) << 32 | low & 0xFFFFFFFF
    assert checksum.of_delta(dense_delta(units // 4), key) == checksum.of_weights(units // 4, key)


def splitmix64(state: int) -> int:
    word = (1 << 64) - 1
    state &= word
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & word
    state = (state ^ state >> 27) * 0x94D049BB133111EB & word
    return state ^ state >> 31


def test_keys_differ_by_lineage_and_make_other_sums() -> None:
    one, other = checksum.key_of(LINEAGE), checksum.key_of(b"m" * 32)
    units = np.arange(9, dtype=np.int32)
    assert checksum.of_weights(units, one) != checksum.of_weights(units, other)


@FEW
@given(st.randoms(), st.integers(0, len(ENTRIES)), st.booleans())
def test_a_set_knows_the_checksum_of_its_weights(rng: random.Random, count: int, forked: bool) -> None:
    """Whatever came in and was taken back, and at equal digests always the same."""
    everything = ENTRIES + BRANCH if forked else ENTRIES
    one = set_of(rng.sample(everything, min(count, len(everything))))
    assert one.checksum == checksum.of_weights(one.units, one.checksum_key)
    whole, again = set_of(everything), set_of(rng.sample(everything, len(everything)))
    assert whole.checksum == checksum.of_weights(whole.units, whole.checksum_key)
    assert (whole.checksum == again.checksum) == (whole.log.digest() == again.log.digest())
