"""The laws of the delta set: order, duplicates and detours never matter; forks are found and everybody agrees."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.weights import MAX_UNITS, WeightLayout
from p2pnode.merging.deltaset.attribution import added_by, attribute
from p2pnode.merging.deltaset.entry import Entry
from p2pnode.merging.deltaset.heads import Span, missing
from p2pnode.merging.deltaset.set import DeltaSet, apply, unapply, weights_hash, within_range
from tests.compression.dense import dense_delta
from tests.merging.deltaset.chains import (
    AUTHORS,
    GENESIS,
    alike,
    chain,
    deliver,
    delta,
    entry,
    name,
    new_set,
    set_of,
    sum_of,
)

HONEST = [one for author in range(4) for one in chain(author, 5)] + chain(0, 3, seed=7, incarnation=1)
MAIN = chain(2, 6, seed=3)
OTHER_TAIL = chain(2, 3, seed=4, after=MAIN[2])  # entries 4 to 6 once more, with other content
LATER_TAIL = chain(2, 1, seed=5, after=MAIN[4])  # entry 6 a third time
FORKED = [*chain(0, 3), *chain(1, 2), *MAIN, *OTHER_TAIL, *LATER_TAIL]

orders = st.integers(0, 1 << 32).map(random.Random)
FEW = settings(max_examples=40, deadline=None)


def shuffled(entries: list[Entry], rng: random.Random, duplicates: int = 5) -> list[Entry]:
    order = entries + rng.choices(entries, k=duplicates)
    rng.shuffle(order)
    return order


@FEW
@given(orders)
def test_order_and_duplicates_do_not_matter(rng: random.Random) -> None:
    deltas = set_of(shuffled(HONEST, rng))
    assert np.array_equal(deltas.units, sum_of(HONEST))
    assert alike(deltas, set_of(HONEST))


@FEW
@given(orders, st.integers(0, len(HONEST)))
def test_any_part_adds_up_to_the_entries_that_follow_each_other(rng: random.Random, count: int) -> None:
    part = rng.sample(HONEST, count)
    deltas = set_of(part)
    known = {(one.chain, one.seq) for one in part}
    following = [one for one in HONEST if all((one.chain, seq) in known for seq in range(1, one.seq + 1))]
    assert np.array_equal(deltas.units, sum_of(following))
    assert deltas.steps == 10 * len(following)
    deliver(deltas, rng.sample(HONEST, len(HONEST)))
    assert alike(deltas, set_of(HONEST))


@FEW
@given(orders, st.integers(0, len(HONEST)), st.integers(0, len(HONEST)))
def test_nodes_that_exchange_what_is_missing_become_alike(rng: random.Random, some: int, others: int) -> None:
    one, other = set_of(rng.sample(HONEST, some)), set_of(rng.sample(HONEST, others))
    for _ in range(6):  # what comes in lets entries follow that waited, and the other may lack those
        exchange(one, other)
    assert alike(one, other)


@FEW
@given(orders)
def test_a_fork_is_found_in_every_order_and_both_sides_converge(rng: random.Random) -> None:
    deltas = set_of(shuffled(FORKED, rng))
    assert deltas.log.exclusions == {name(2): 4}
    assert np.array_equal(deltas.units, sum_of([*chain(0, 3), *chain(1, 2), *MAIN[:3]]))
    assert alike(deltas, set_of(FORKED))


@FEW
@given(orders, st.integers(0, 6), st.integers(0, 3))
def test_sides_that_saw_different_branches_agree_after_exchanges(rng: random.Random, some: int, others: int) -> None:
    """Whichever heads the two have: equal ones that hide the fork, or one ahead of the other."""
    one = set_of([*chain(0, 3), *MAIN[:some]])
    other = set_of([*chain(1, 2), *MAIN[:3], *OTHER_TAIL[:others]])
    for _ in range(4):
        exchange(one, other)
        exchange(other, one)
    assert alike(one, other)
    if some >= 4 and others >= 1:
        assert one.log.exclusions == {name(2): 4}


def exchange(mine: DeltaSet, theirs: DeltaSet) -> None:
    """What two nodes do: proofs both ways, then what is missing both ways, then claims where heads hide a fork."""
    for source, target in ((mine, theirs), (theirs, mine)):
        for proof in source.log.proofs.values():
            target.add_proof(proof)
        for span in missing(target.heads, source.heads):
            deliver(target, source.log.entries(span))
    if mine.heads == theirs.heads and mine.log.digest() != theirs.log.digest():
        for place in mine.heads:
            theirs.compare_claims(mine.log.claims(place), place)


def test_a_chain_that_skips_a_link_is_left_out_by_everybody() -> None:
    """An entry that names a predecessor nobody has proves fraud with the real predecessor."""
    start = chain(1, 3)
    bent = entry(1, start[2], 99, previous=b"x" * 32)
    one, other = set_of([*start, bent]), set_of([bent, *reversed(start)])
    assert alike(one, other)
    assert one.log.exclusions == {name(1): 4}
    third = set_of(start)
    assert third.add_proof(one.log.proofs[name(1)]).verdict == "fork"
    assert alike(third, one)


def test_after_a_fork_the_author_may_begin_a_new_incarnation() -> None:
    deltas = set_of(FORKED)
    again = chain(2, 2, seed=8, incarnation=1)
    assert [change.verdict for change in deliver(deltas, again)] == ["added", "added"]
    assert deltas.heads[name(2, 1)] == 2


@given(st.lists(st.integers(0, 1000), max_size=6), st.booleans())
def test_taking_back_what_was_added_leaves_no_trace(seeds: list[int], large: bool) -> None:
    """Also across the wrap-around, where saturating sums would lose what was there."""
    units = GENESIS.copy()
    moves = [delta(seed, 30, MAX_UNITS if large else 100) for seed in seeds] * 4
    for move in moves:
        apply(units, move)
    for move in random.Random(0).sample(moves, len(moves)):
        unapply(units, move)
    assert np.array_equal(units, GENESIS)
    assert weights_hash(units) == weights_hash(GENESIS)


def test_dense_deltas_add_like_sparse_ones() -> None:
    units, values = GENESIS.copy(), np.arange(-20, 20, dtype=np.int32)
    apply(units, dense_delta(values))
    assert np.array_equal(units, GENESIS + values)
    unapply(units, dense_delta(values))
    assert np.array_equal(units, GENESIS)
    assert values.flags.writeable, "the caller's own array stays its own"


def test_a_publisher_leaves_out_what_would_leave_the_grid() -> None:
    units = np.array([MAX_UNITS - 5, 0], np.int32)
    step = SparseDelta(2, np.array([0, 1], np.uint32), np.array([5, 7], np.int32))
    assert within_range(units, step) is step
    apply(units, step)
    assert within_range(units, step) == SparseDelta(2, np.array([1], np.uint32), np.array([7], np.int32))


def test_a_weight_outside_the_grid_may_come_back() -> None:
    units = np.array([MAX_UNITS + 100, -MAX_UNITS - 100], np.int32)
    inwards = SparseDelta(2, np.array([0, 1], np.uint32), np.array([-5, 7], np.int32))
    assert within_range(units, inwards) is inwards
    outwards = SparseDelta(2, np.array([0, 1], np.uint32), np.array([5, -7], np.int32))
    assert len(within_range(units, outwards)) == 0


def test_the_hash_of_weights_sees_every_coordinate() -> None:
    units = np.zeros(600_000, np.int32)
    hashes = {weights_hash(units)}
    for place in (0, (1 << 18) - 1, 1 << 18, 599_999):
        changed = units.copy()
        changed[place] = 1
        hashes.add(weights_hash(changed))
    assert len(hashes) == 5
    assert weights_hash(units[:-1]) not in hashes


def test_influence_is_what_an_author_added() -> None:
    deltas = set_of(HONEST)
    without = set_of([one for one in HONEST if one.peer != AUTHORS[1].peer_id])
    assert np.array_equal(deltas.units - added_by(deltas, AUTHORS[1].peer_id), without.units)
    layout = WeightLayout((("first", (10,)), ("second", (5, 6))))
    shares = attribute(deltas.log, deltas.rules, layout)
    assert set(shares) == {author.peer_id for author in AUTHORS}
    only = set_of(chain(1, 1))
    moved = np.abs(added_by(only, AUTHORS[1].peer_id))
    assert attribute(only.log, only.rules, layout) == {
        AUTHORS[1].peer_id: {"first": int(moved[:10].sum()), "second": int(moved[10:].sum())}
    }


def test_entries_are_handed_out_by_span() -> None:
    log = set_of(MAIN).log
    assert log.entries(Span(name(2), 2, 4)) == MAIN[1:4]
    assert log.entries(Span(name(2), 5, 99)) == MAIN[4:]
    assert log.entries(Span(name(3), 1, 5)) == []
    assert list(log) == MAIN
    assert new_set().log.next_place(name(2)) == (1, bytes(32))
