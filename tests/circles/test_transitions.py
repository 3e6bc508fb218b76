"""From one circle to another, through policies: those who follow a split agree bit for bit, nothing unsent is lost."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.circles.founding import CircleFounding, circle_lineage, circle_name, sign_found
from p2pnode.circles.transitions import follow_split, set_from_snapshot, split_off, union_with
from p2pnode.compression.weights import to_units
from p2pnode.merging.deltaset.entry import UNION, decode_entry
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.deltaset.snapshots import Unsuited
from p2pnode.merging.policy import PolicySetup, RoundFacts
from p2pnode.merging.snapshots.outline import Snapshot
from p2pnode.wire.ids import PeerId
from tests.merging.deltaset.test_set_bridges import GENESIS, RUN, learn, member

FIRST = circle_lineage(RUN, "")


def exchange(one: DeltaSetPolicy, other: DeltaSetPolicy) -> None:
    push = one.take(peer(other), other.answer(peer(one), one.ask(peer(other))))
    if push:
        other.take(peer(one), push)


def peer(policy: DeltaSetPolicy) -> PeerId:
    return policy.author.identity.peer_id


def circle(count: int, rounds: int = 2) -> list[DeltaSetPolicy]:
    """Members of the run's first circle that have learned and exchanged entries, by id."""
    members = sorted((member(number, FIRST) for number in range(count)), key=peer)
    for number, one in enumerate(members):
        learn(one, number, rounds)
    for one in members:
        for other in members:
            if one is not other:
                exchange(one, other)
    assert len({one.set.log.digest() for one in members}) == 1
    return members


def split(members: list[DeltaSetPolicy], leaving: int) -> CircleFounding:
    """The first `leaving` go; the founder's word."""
    found, deltas = split_off(
        members[0], members[0].author.identity, [peer(one) for one in members[:leaving]], len(members), RUN
    )
    members[0].move(deltas, deltas.weights(), 1)
    return found


def go(policy: DeltaSetPolicy, lineage: bytes, snapshot: Snapshot, incarnation: int) -> None:
    there = set_from_snapshot(policy, lineage, snapshot)
    policy.move(there, there.weights(), incarnation)


@given(st.lists(st.integers(0, 3), min_size=3, max_size=3), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_all_who_follow_a_split_begin_alike_wherever_they_are_by_then(later: list[int], seed: int) -> None:
    members = circle(4)
    found = split(members, 4)
    for number, (one, rounds) in enumerate(zip(members[1:], later, strict=True)):
        learn(one, seed + number, rounds)
        if number:
            exchange(one, members[number])
    residuals = [one.author.residual.copy() for one in members]
    for one in members[1:]:
        begun = follow_split(one, found, RUN)
        assert begun is not None
        one.move(begun, begun.weights(), 1)
    assert len({(one.set.log.digest(), one.set.hash(), one.set.checksum) for one in members}) == 1
    assert {one.set.rules.lineage for one in members} == {circle_lineage(RUN, circle_name(found))}
    for one, residual in zip(members, residuals, strict=True):
        assert np.array_equal(one.author.residual, residual), "what was not published yet comes along"
    for number, one in enumerate(members):
        learn(one, 100 + number)
    for one in members[1:]:
        exchange(one, members[0])
    exchange(members[1], members[0])
    assert members[1].set.hash() == members[0].set.hash()
    assert {entry.incarnation for entry in members[0].set.log} == {1}


def test_who_lacks_entries_of_the_split_waits_and_who_hears_of_other_weights_refuses() -> None:
    members = circle(3)
    learn(members[0], 9)
    found = split(members, 3)
    assert follow_split(members[1], found, RUN) is None
    lie = sign_found(members[0].author.identity, msgspec.structs.replace(circle_word(members[1]), weights=b"l" * 32))
    with pytest.raises(ValueError, match="other weights"):
        follow_split(members[1], lie, RUN)


def circle_word(policy: DeltaSetPolicy) -> CircleFounding:
    return split_off(policy, policy.author.identity, [peer(policy)], 3, RUN)[0]


def test_a_split_of_another_circle_is_none_of_ours() -> None:
    found = split(circle(2), 2)
    stranger = member(9, circle_lineage(RUN, "elsewhere"))
    with pytest.raises(ValueError, match="lineage"):
        follow_split(stranger, found, RUN)


def test_the_two_halves_go_their_own_ways() -> None:
    members = circle(4)
    found = split(members, 2)
    begun = follow_split(members[1], found, RUN)
    assert begun is not None
    members[1].move(begun, begun.weights(), 1)
    learn(members[0], 50)
    learn(members[2], 51)
    with pytest.raises(ValueError, match="another lineage"):
        exchange(members[3], members[0])
    exchange(members[1], members[0])
    exchange(members[3], members[2])
    assert members[1].set.hash() == members[0].set.hash() != members[2].set.hash() == members[3].set.hash()


def test_taking_over_elsewhere_gives_what_is_there_and_a_log_nobody_wrote_to() -> None:
    members = circle(3)
    mover = member(20, circle_lineage(RUN, "small"))
    learn(mover, 7, 3)
    before = mover.author.residual.copy()
    snapshot = members[0].snapshot()
    assert snapshot is not None
    go(mover, FIRST, snapshot, 4)
    assert mover.set.hash() == members[0].set.hash()
    assert np.array_equal(mover.author.residual, before)
    assert np.array_equal(mover.start(), members[0].weights())
    learn(mover, 8)
    assert {entry.incarnation for entry in mover.set.log if entry.peer == peer(mover)} == {4}
    exchange(members[1], mover)
    assert members[1].set.hash() == mover.set.hash()


def test_who_comes_back_begins_a_log_that_follows_none_of_its_old_ones() -> None:
    members = circle(3)
    snapshot = members[1].snapshot()
    assert snapshot is not None
    gone = members[0]
    go(gone, circle_lineage(RUN, "away"), away_snapshot(), 1)
    go(gone, FIRST, snapshot, 0)
    assert gone.author.incarnation == 1


def away_snapshot() -> Snapshot:
    snapshot = member(30, circle_lineage(RUN, "away")).snapshot()
    assert snapshot is not None
    return snapshot


@pytest.mark.parametrize("what", ["place", "content", "lineage"])
def test_what_is_no_snapshot_of_that_circle_is_refused_and_nothing_changes(what: str) -> None:
    members, mover = circle(2), member(20, circle_lineage(RUN, "small"))
    snapshot = members[0].snapshot()
    assert snapshot is not None
    broken = {
        "place": Snapshot(b"nowhere", snapshot.content, snapshot.kept),
        "content": Snapshot(snapshot.place, snapshot.content[:-4], snapshot.kept),
        "lineage": snapshot,
    }[what]
    before = mover.set.hash(), mover.set.rules
    with pytest.raises(ValueError, match=r"malformed|bytes|lineage") as error:
        set_from_snapshot(mover, circle_lineage(RUN, "other") if what == "lineage" else FIRST, broken)
    assert not isinstance(error.value, Unsuited)
    assert (mover.set.hash(), mover.set.rules) == before


def test_a_union_is_published_once_and_moves_the_larger_circle_by_the_share_of_the_smaller() -> None:
    large = circle(3)
    small = [member(number, circle_lineage(RUN, "small")) for number in (20, 21)]
    learn(small[0], 60, 6)
    exchange(small[1], small[0])
    theirs, ours = large[0].weights(), small[0].weights()
    for one in small:
        snapshot = large[0].snapshot()
        assert snapshot is not None
        there = set_from_snapshot(one, FIRST, snapshot)
        union = union_with(one, there, 2, 3)
        assert union is not None
        one.move(there, there.weights(), 1)
        journal = one.publish(union)
        assert bool(journal) == (one is small[0])
        if journal:
            assert decode_entry(journal).kind == UNION
        exchange(large[0], one)
    assert sum(entry.kind == UNION for entry in large[0].set.log) == 1
    moved = large[0].weights() - theirs
    wanted = 0.4 * (ours - theirs)
    assert np.linalg.norm(moved - wanted) < 0.2 * np.linalg.norm(wanted)


def test_a_circle_that_has_learned_little_adds_nothing() -> None:
    large, newcomer = circle(3, rounds=6), member(20, circle_lineage(RUN, "small"))
    learn(newcomer, 7)
    snapshot = large[0].snapshot()
    assert snapshot is not None
    assert union_with(newcomer, set_from_snapshot(newcomer, FIRST, snapshot), 1, 3) is None


def test_a_peer_that_is_left_out_stays_out_in_a_circle_that_split_off() -> None:
    members = circle(3)
    members[1].leave_out(peer(members[2]))
    without = members[1].weights()
    found = split(members, 2)
    begun = follow_split(members[1], found, RUN)
    assert begun is not None
    members[1].move(begun, begun.weights(), 1)
    assert np.array_equal(members[1].weights(), without)
    assert members[1].left_out == {peer(members[2])}


def test_what_is_saved_says_its_lineage_and_a_policy_of_another_goes_on_there() -> None:
    members = circle(2)
    found = split(members, 2)
    state = members[0].state()
    begun = members[0].start()
    journal = members[0].publish(members[0].record(begun, begun + 0.01, RoundFacts(5, 1.0, 160, 1)))
    again = DeltaSetPolicy(origin_like(members[0]))
    again.restore(state, [journal])
    assert again.set.rules.lineage == circle_lineage(RUN, circle_name(found))
    assert again.set.hash() == members[0].set.hash(), "nothing of the journal is dropped"


def origin_like(policy: DeltaSetPolicy) -> PolicySetup:
    return PolicySetup(to_units(GENESIS), policy.author.identity, FIRST.hex(), "main", "cd" * 32, {}, 1)
