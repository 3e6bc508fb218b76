"""Snapshots: a set goes on from one as if it had seen everything; what is wrong in one is found."""

from __future__ import annotations

import contextlib
import random

import msgspec
import numpy as np
import pytest
from chains import LINEAGE, RULES, alike, chain, deliver, name, set_of
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.deltaset.accumulate import CHUNK_UNITS
from p2pnode.deltaset.entry import rules_for
from p2pnode.deltaset.set import DeltaSet
from p2pnode.deltaset.snapshot import (
    Snapshot,
    check_snapshot,
    decode_chunk,
    decode_snapshot,
    encode_chunk,
    encode_snapshot,
    take_over,
    take_snapshot,
)

ENTRIES = [one for author in range(3) for one in chain(author, 6)]
BRANCH = chain(1, 2, seed=9, after=chain(1, 3)[2])


def through_bytes(deltas: DeltaSet) -> tuple[Snapshot, np.ndarray]:
    """A snapshot as another node gets it."""
    snapshot = decode_snapshot(encode_snapshot(take_snapshot(deltas)))
    chunks = [decode_chunk(encode_chunk(deltas.units, number), snapshot, number) for number in range(snapshot.count)]
    return snapshot, np.concatenate(chunks)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 32).map(random.Random), st.integers(0, len(ENTRIES)), st.booleans())
def test_a_snapshot_and_later_entries_are_the_full_replay(rng: random.Random, seen: int, forked: bool) -> None:
    everything = ENTRIES + BRANCH if forked else ENTRIES
    source = set_of(rng.sample(everything, min(seen, len(everything))))
    joined = take_over(*through_bytes(source), RULES)
    assert alike(joined, source)
    later = rng.sample(everything, len(everything))
    deliver(joined, later)
    deliver(source, later)
    if not forked:
        assert alike(joined, set_of(ENTRIES))
        assert alike(joined, source)


def test_hash_and_digest_are_those_of_the_set() -> None:
    deltas = set_of(ENTRIES)
    snapshot = take_snapshot(deltas)
    assert snapshot.weights_hash() == deltas.hash()
    assert snapshot.digest() == deltas.log.digest()


def test_own_entries_that_the_snapshot_lacks_are_added_again_and_the_rest_is_still_served() -> None:
    source = set_of([*chain(0, 4), *chain(1, 6)])
    mine = set_of([*chain(0, 6), *chain(1, 2), *chain(2, 1)])
    after = take_over(*through_bytes(source), RULES, mine)
    assert alike(after, set_of([*chain(0, 6), *chain(1, 6), *chain(2, 1)]))
    assert list(after.log) == [*sorted([*chain(0, 6), *chain(2, 1)], key=lambda one: (one.chain, one.seq))]
    assert after.log.can_serve({name(1): 6})


def test_behind_retention_a_snapshot_brings_a_node_back() -> None:
    ahead = set_of(ENTRIES)
    ahead.log.drop({name(0): 5, name(1): 5})
    behind = set_of(chain(0, 2))
    assert not ahead.log.can_serve(behind.heads)
    assert alike(take_over(*through_bytes(ahead), RULES, behind), ahead)


def test_forks_travel_with_snapshots_and_are_not_forgotten() -> None:
    excluded = set_of([*ENTRIES, *BRANCH])
    joined = take_over(*through_bytes(excluded), RULES)
    assert joined.log.exclusions == {name(1): 4}
    assert "left out" in joined.add(BRANCH[0]).why
    unaware = set_of(ENTRIES)
    with pytest.raises(ValueError, match="left out here"):
        take_over(*through_bytes(unaware), RULES, excluded)
    back = take_over(*through_bytes(excluded), RULES, excluded)
    assert back.log.proofs == excluded.log.proofs


def test_a_wrong_snapshot_is_refused_by_name() -> None:
    deltas = set_of(ENTRIES)
    good = take_snapshot(deltas)
    replace = msgspec.structs.replace
    for bad, why in [
        (replace(good, lineage=b"o" * 32), "lineage"),
        (replace(good, layout="other"), "layout"),
        (replace(good, chunks=b""), "each chunk"),
        (replace(good, tips=good.tips[:-1]), "each head"),
        (replace(good, heads=b"\x05"), "heads"),
        (replace(good, exclusions=good.heads), "leaves out"),
    ]:
        assert why in check_snapshot(bad, RULES)
        with pytest.raises(ValueError, match="refused"):
            take_over(bad, deltas.units, RULES)
    assert check_snapshot(good, RULES) == ""
    wrong = deltas.units.copy()
    wrong[7] += 1
    with pytest.raises(ValueError, match="hash"):
        take_over(good, wrong, RULES)


def test_chunks_come_in_any_order_and_a_wrong_one_is_found() -> None:
    units = (np.random.default_rng(1).standard_normal(2 * CHUNK_UNITS + 11) * 500_000).astype(np.int32)
    deltas = DeltaSet(rules_for("big", LINEAGE, "layout", units), units)
    snapshot = take_snapshot(deltas)
    chunks = [encode_chunk(units, number) for number in range(snapshot.count)]
    assert len(chunks) == 3
    assert sum(map(len, chunks)) < 0.75 * units.nbytes, "the high bytes of weights say little"
    for number in (2, 0, 1):
        place = slice(number * CHUNK_UNITS, (number + 1) * CHUNK_UNITS)
        assert np.array_equal(decode_chunk(chunks[number], snapshot, number), units[place])
    bent = bytearray(chunks[1])
    bent[1000] ^= 1
    for data, number in [(bytes(bent), 1), (chunks[0], 1), (chunks[1][:-5], 1), (chunks[1] + b"\0", 1), (chunks[2], 3)]:
        with pytest.raises(ValueError):  # noqa: PT011
            decode_chunk(data, snapshot, number)


def test_hostile_bytes_never_crash_the_readers() -> None:
    rng = random.Random(2)
    deltas = set_of([*ENTRIES, *BRANCH])
    snapshot, whole = take_snapshot(deltas), encode_snapshot(take_snapshot(deltas))
    chunk = encode_chunk(deltas.units, 0)
    for _ in range(15_000):
        data, piece = bytearray(whole), bytearray(chunk)
        for target in (data, piece):
            target[rng.randrange(len(target))] = rng.randrange(256)
        with contextlib.suppress(ValueError):
            read = decode_snapshot(bytes(data))
            if not check_snapshot(read, RULES):
                take_over(read, deltas.units, RULES)
        with contextlib.suppress(ValueError):
            assert np.array_equal(decode_chunk(bytes(piece), snapshot, 0), deltas.units)
