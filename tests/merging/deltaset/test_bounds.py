"""How large an entry may be: levels, limits from the others' medians, and cutting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.signs import encode_signs
from p2pnode.merging.deltaset.bounds import (
    FEWEST,
    NO_LIMITS,
    UNLIMITED,
    Limits,
    Sizes,
    cut_to,
    largest_of,
    level,
    limits_from,
    sizes_of,
)

LAYERS = (5, 12, 3)
SIZE = sum(LAYERS)

values = st.lists(st.integers(-(1 << 28), 1 << 28), min_size=SIZE, max_size=SIZE)
limits = st.builds(Limits, st.integers(1, 200), st.integers(1, 200), st.tuples(*[st.integers(1, 200) for _ in LAYERS]))
sizes = st.tuples(*[st.integers(0, 200) for _ in range(2 + len(LAYERS))])


def delta(numbers: list[int]) -> SparseDelta:
    found = np.array(numbers, np.int32)
    places = np.flatnonzero(found).astype(np.uint32)
    return SparseDelta(SIZE, places, found[places])


@given(st.integers(0, 1 << 40))
def test_a_level_holds_the_sizes_between_its_neighbours(size: int) -> None:
    found = level(size)
    assert size <= largest_of(found)
    assert found == 0 or size > largest_of(found - 1)


def test_levels_are_six_an_octave() -> None:
    assert [level(1 << power) for power in range(2, 30)] == [1 + 6 * power for power in range(2, 30)]
    assert level(0) == 0


@given(values, limits)
def test_what_is_cut_fits_and_what_fits_is_not_changed(numbers: list[int], allowed: Limits) -> None:
    cut = cut_to(delta(numbers), allowed, LAYERS)
    assert not allowed.broken_by(sizes_of(cut, LAYERS))
    assert cut_to(cut, allowed, LAYERS) is cut
    assert (np.abs(cut.values) <= np.abs(delta(numbers).values)).all()
    assert (cut.values * delta(numbers).values.astype(np.int64) >= 0).all()


@given(st.lists(st.booleans(), min_size=SIZE, max_size=SIZE), limits)
def test_sign_entries_stay_sign_entries(signs: list[bool], allowed: Limits) -> None:
    scales = np.repeat([1 << 20, 1 << 22, 900], LAYERS)
    whole = SparseDelta(SIZE, np.arange(SIZE, dtype=np.uint32), np.where(signs, scales, -scales).astype(np.int32))
    cut = cut_to(whole, allowed, LAYERS, whole=True)
    assert not allowed.broken_by(sizes_of(cut, LAYERS))
    encode_signs(cut, LAYERS)


@given(st.lists(sizes, min_size=FEWEST, max_size=12), st.data())
def test_fewer_than_half_cannot_raise_the_limit_beyond_the_largest_of_the_others(
    honest: list[Sizes], data: st.DataObject
) -> None:
    liars = data.draw(st.lists(st.one_of(st.none(), sizes), max_size=len(honest) - 1))
    found = limits_from([*honest, *liars], len(LAYERS))
    assert found is NO_LIMITS or found.norm <= max(one[0] for one in honest) + 3


@given(st.lists(sizes, min_size=FEWEST, max_size=9), st.integers(0, 8))
def test_a_size_that_is_not_known_never_makes_a_limit_tighter(cited: list[Sizes], place: int) -> None:
    place %= len(cited)
    unknown: list[Sizes | None] = [None if number == place else one for number, one in enumerate(cited)]
    before, after = limits_from(cited, len(LAYERS)), limits_from(unknown, len(LAYERS))
    if before is NO_LIMITS:
        return
    assert after is NO_LIMITS or after.norm >= before.norm
    assert all(now >= then for now, then in zip(after.tensors, before.tensors, strict=False))


@pytest.mark.parametrize("cited", [[], [None, None], [(0, 0, 0, 0, 0)] * 5])
def test_without_others_to_compare_with_only_the_manifest_bounds(cited: list[Sizes | None]) -> None:
    assert limits_from(cited, 3) is NO_LIMITS
    assert limits_from([None] * 5, 3).norm == UNLIMITED
