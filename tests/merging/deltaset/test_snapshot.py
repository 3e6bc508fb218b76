"""Snapshots: a set goes on from one as if it had seen everything; a member that moved on still knows it."""

from __future__ import annotations

import contextlib
import random

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.compression.weights import Units
from p2pnode.merging.deltaset.entry import Entry, encode_entry
from p2pnode.merging.deltaset.heads import Span
from p2pnode.merging.deltaset.set import DeltaSet
from p2pnode.merging.deltaset.snapshots import (
    KEPT_LEAST_BYTES,
    LogPosition,
    Unsuited,
    check_place,
    decode_place,
    encode_kept,
    encode_place,
    log_position,
    passed,
    take_off,
    take_over,
)
from tests.merging.deltaset.chains import RULES, alike, chain, deliver, entry, name, new_set, set_of

ENTRIES = [one for author in range(3) for one in chain(author, 6)]
BRANCH = chain(1, 2, seed=9, after=chain(1, 3)[2])


def given_by(deltas: DeltaSet) -> tuple[LogPosition, Units]:
    """A snapshot as another node gets it."""
    return decode_place(encode_place(log_position(deltas)), RULES), deltas.units.copy()


def remembered(deltas: DeltaSet, place: LogPosition, cut: int = 17) -> tuple[LogPosition, Units]:
    """A at a place a set has passed, put together from two parts."""
    known = passed(deltas, place)
    assert known is not None
    units = deltas.units.copy()
    take_off(units[:cut], 0, known[1], RULES)
    take_off(units[cut:], cut, known[1], RULES)
    return known[0], units


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32).map(random.Random), st.integers(0, len(ENTRIES)), st.booleans())
def test_a_snapshot_and_later_entries_are_the_full_replay(rng: random.Random, seen: int, forked: bool) -> None:
    everything = ENTRIES + BRANCH if forked else ENTRIES
    source = set_of(rng.sample(everything, min(seen, len(everything))))
    joined = take_over(*given_by(source), RULES)
    assert alike(joined, source)
    later = rng.sample(everything, len(everything))
    deliver(joined, later)
    deliver(source, later)
    if not forked:
        assert alike(joined, set_of(ENTRIES))
        assert alike(joined, source)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32).map(random.Random), st.integers(0, len(ENTRIES)), st.integers(0, 40))
def test_who_has_moved_on_knows_what_was_there(rng: random.Random, seen: int, cut: int) -> None:
    """Whoever has all entries of a place and keeps those since makes the same snapshot, however it got there."""
    source = set_of(rng.sample(ENTRIES, seen))
    place, units = given_by(source)
    other = set_of(rng.sample(ENTRIES, len(ENTRIES)))
    other.log.drop(source.heads)
    then, weights = remembered(other, place, cut)
    assert then == place
    assert np.array_equal(weights, units)
    assert place.digest() == source.log.digest()


def test_who_cannot_know_does_not_say() -> None:
    source = set_of([*chain(0, 4), *chain(1, 2)])
    place = log_position(source)
    behind = set_of([*chain(0, 3), *chain(1, 5)])
    assert passed(behind, place) is None
    forgetful = set_of(ENTRIES)
    forgetful.log.drop({name(0): 5})
    assert passed(forgetful, place) is None
    newly_known = set_of(ENTRIES)
    newly_known.log.drop({name(2): 1})  # an author that the place does not know at all
    assert passed(newly_known, place) is None
    excluding = set_of([*ENTRIES, *BRANCH])
    assert passed(excluding, place) is None
    other_branch = set_of([*chain(0, 6), *chain(1, 6, seed=5)])
    assert passed(other_branch, place) is None, "the same heads, but not the same entries"
    assert passed(set_of(ENTRIES), place) is not None


def test_a_lie_about_steps_shows() -> None:
    deltas = set_of(ENTRIES)
    lie = msgspec.structs.replace(log_position(set_of(chain(0, 4))), steps=7)
    known = passed(deltas, lie)
    assert known is not None
    assert known[0].steps == 40


def test_own_entries_that_the_snapshot_lacks_are_added_again_and_the_rest_is_still_served() -> None:
    source = set_of([*chain(0, 4), *chain(1, 6)])
    mine = set_of([*chain(0, 6), *chain(1, 2), *chain(2, 1)])
    after = take_over(*given_by(source), RULES, mine)
    assert alike(after, set_of([*chain(0, 6), *chain(1, 6), *chain(2, 1)]))
    assert list(after.log) == [*sorted([*chain(0, 6), *chain(2, 1)], key=lambda one: (one.chain, one.seq))]
    assert after.log.can_serve({name(1): 6})


def test_behind_retention_a_snapshot_brings_a_node_back() -> None:
    ahead = set_of(ENTRIES)
    ahead.log.drop({name(0): 5, name(1): 5})
    behind = set_of(chain(0, 2))
    assert not ahead.log.can_serve(behind.heads)
    assert alike(take_over(*given_by(ahead), RULES, behind), ahead)


def test_forks_travel_with_snapshots_and_are_not_forgotten() -> None:
    excluded = set_of([*ENTRIES, *BRANCH])
    joined = take_over(*given_by(excluded), RULES)
    assert joined.log.exclusions == {name(1): 4}
    assert joined.add(BRANCH[0]).verdict == "excluded"
    unaware = set_of(ENTRIES)
    with pytest.raises(Unsuited, match="excluded here"):
        take_over(*given_by(unaware), RULES, excluded)
    back = take_over(*given_by(excluded), RULES, excluded)
    assert back.log.proofs == excluded.log.proofs


# ---- what comes along ----


def kept_of(deltas: DeltaSet) -> bytes:
    return encode_kept([deltas.log.entries(Span(chain, 1, head)) for chain, head in deltas.heads.items()], RULES)


def test_entries_that_come_along_are_served_and_taken_back_after_a_fork() -> None:
    source = set_of(ENTRIES)
    joined = take_over(*given_by(source), RULES, None, kept_of(source))
    assert list(joined.log) == list(source.log)
    deliver(joined, BRANCH)
    assert alike(joined, set_of([*ENTRIES, *BRANCH]))
    bare = take_over(*given_by(source), RULES)
    assert list(bare.log) == []


def test_entries_that_come_along_are_not_taken_on_trust() -> None:
    source = set_of(ENTRIES)
    good = chain(1, 6)
    unsigned = msgspec.structs.replace(good[5], signature=bytes(64))
    foreign = entry(1, good[4], seed=77)
    for bad in ([*good[:5], unsigned], [*good[:5], foreign], good[:5], [good[3], good[5]]):
        joined = take_over(*given_by(source), RULES, None, encode_kept([bad], RULES))
        assert alike(joined, source)
        assert list(joined.log) in ([], [good[5]])
    with pytest.raises(ValueError, match="malformed"):
        take_over(*given_by(source), RULES, None, b"\xc1")


def test_what_comes_along_is_bounded_and_the_latest() -> None:
    long = chain(0, 6)
    padded = [msgspec.structs.replace(one, payload=bytes(KEPT_LEAST_BYTES // 8)) for one in long]
    chains = msgspec.msgpack.decode(encode_kept([padded, padded], RULES), type=list[list[bytes]])
    assert chains[0] == chains[1] == [encode_entry(one) for one in padded[-3:]]


# ---- what is wrong ----


def test_a_wrong_place_is_refused_by_name() -> None:
    deltas = set_of(ENTRIES)
    good = log_position(deltas)
    replace = msgspec.structs.replace
    for bad, why in [
        (replace(good, lineage=b"o" * 32), "lineage"),
        (replace(good, layout="other"), "layout"),
        (replace(good, tips=good.tips[:-1]), "each head"),
        (replace(good, heads=b"\x05"), "heads"),
        (replace(good, exclusions=good.heads), "it excludes"),
    ]:
        assert why in check_place(bad, RULES)
        with pytest.raises(ValueError, match="refused"):
            take_over(bad, deltas.units, RULES)
        with pytest.raises(ValueError, match="refused"):
            decode_place(encode_place(bad), RULES)
    assert check_place(good, RULES) == ""


def test_hostile_bytes_never_crash_the_readers() -> None:
    rng = random.Random(2)
    deltas = set_of([*ENTRIES, *BRANCH])
    whole, kept = encode_place(log_position(deltas)), kept_of(deltas)
    for _ in range(4_000):
        data, along = bytearray(whole), bytearray(kept)
        for target in (data, along):
            target[rng.randrange(len(target))] = rng.randrange(256)
        with contextlib.suppress(ValueError):
            place = decode_place(bytes(data), RULES)
            passed(deltas, place)
            take_over(place, deltas.units, RULES, new_set())
        with contextlib.suppress(ValueError):
            joined = take_over(*given_by(deltas), RULES, None, bytes(along))
            assert alike(joined, deltas)


def test_nothing_is_a_place_too() -> None:
    empty: list[Entry] = []
    assert alike(take_over(*given_by(set_of(empty)), RULES), new_set())
    known, units = remembered(set_of(ENTRIES), log_position(new_set()))
    assert known == log_position(new_set())
    assert np.array_equal(units, new_set().units)
