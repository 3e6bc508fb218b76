"""Leases: which one wins, who may sign what, when an owner works and when others take over."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.jobs.leases.lease import (
    MAX_LEAP,
    Lease,
    accept,
    check_lease,
    check_offer,
    check_renewal,
    lease_id,
    offer,
    rank,
    renew,
    take,
)
from p2pnode.jobs.leases.watch import LeaseTimes, LeaseWatch, turn_order
from p2pnode.wire.ids import Identity

A, B, C = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
FIRST = take(A, "run/zoo", "small", None)
TIMES = LeaseTimes()


def watch(me: Identity, now: float = 0.0) -> LeaseWatch:
    return LeaseWatch(me, "run/zoo", "small", TIMES, now)


def test_the_higher_term_wins_and_equal_terms_are_ordered_alike_everywhere() -> None:
    by_b, by_c = take(B, "run/zoo", "small", FIRST), take(C, "run/zoo", "small", FIRST)
    assert rank(None) < rank(FIRST) < min(rank(by_b), rank(by_c))
    assert rank(by_b) != rank(by_c)
    one, other = watch(A), watch(A)
    for lease in (FIRST, by_b, by_c):
        one.learn(lease, None, 0.0)
    for lease in (by_c, by_b, FIRST):
        other.learn(lease, None, 0.0)
    assert one.lease == other.lease == max((by_b, by_c), key=rank)


def changed(**fields: object) -> Callable[[Lease], Lease]:
    return lambda lease: msgspec.structs.replace(lease, **fields)


@pytest.mark.parametrize(
    "forge",
    [
        changed(owner=B.peer_id),
        changed(term=7, previous=b"x" * 32),
        changed(name="wide"),
        changed(scope="other"),
        changed(previous=b"x" * 32),
        changed(signature=b""),
        changed(giver=A.peer_id),
        changed(giver=B.peer_id, giver_signature=b"x" * 64),
    ],
)
def test_a_forged_lease_is_refused(forge: Callable[[Lease], Lease]) -> None:
    check_lease(FIRST, "run/zoo", "small")
    with pytest.raises(ValueError, match=r"lease|hands over|follows"):
        check_lease(forge(FIRST), "run/zoo", "small")
    looking = watch(C)
    looking.learn(FIRST, None, 0.0)
    with pytest.raises(ValueError, match=r"lease|hands over|follows"):
        looking.learn(forge(take(A, "run/zoo", "small", FIRST)), None, 0.0)
    assert looking.lease == FIRST


def test_a_term_far_ahead_is_refused_so_that_terms_last() -> None:
    looking = watch(C)
    looking.learn(FIRST, None, 0.0)
    far = accept(B, Lease("run/zoo", "small", MAX_LEAP + 1, B.peer_id, lease_id(FIRST)))
    with pytest.raises(ValueError, match="too far ahead"):
        looking.learn(far, None, 0.0)


def test_only_the_owner_renews() -> None:
    check_renewal(renew(A, FIRST, 3), FIRST)
    with pytest.raises(ValueError, match="not signed by the owner"):
        check_renewal(renew(B, FIRST, 3), FIRST)
    looking = watch(C)
    looking.learn(FIRST, renew(A, FIRST, 3), 0.0)
    with pytest.raises(ValueError, match="not signed"):
        looking.learn(FIRST, renew(B, FIRST, 9), 1.0)
    looking.learn(FIRST, renew(A, FIRST, 2), 20.0)
    assert looking.number == 3, "an old renewal is no news"


def test_an_offer_holds_once_it_is_accepted() -> None:
    offered = offer(A, FIRST, B.peer_id)
    check_offer(offered, "run/zoo", "small", A.peer_id, B.peer_id)
    with pytest.raises(ValueError, match="not signed by its owner"):
        check_lease(offered, "run/zoo", "small")
    with pytest.raises(ValueError, match="not from the sender"):
        check_offer(offered, "run/zoo", "small", C.peer_id, B.peer_id)
    check_lease(accept(B, offered), "run/zoo", "small")


def test_an_owner_alone_works_and_one_with_members_needs_their_word() -> None:
    mine = watch(A)
    mine.take(0.0)
    assert mine.works(0.0, alone=True)
    assert not mine.works(0.0, alone=False), "nobody has confirmed it yet"
    assert mine.lease is not None
    mine.renew(1.0)
    mine.confirmed(lease_id(mine.lease), 0)
    assert mine.works(1.0 + TIMES.confirm - 0.1, alone=False)
    assert not mine.works(1.0 + TIMES.confirm, alone=False)
    assert not mine.works(1.0 + TIMES.confirm, alone=True), "it was not alone: others may have taken over"


def test_a_late_answer_counts_from_when_the_renewal_was_made() -> None:
    """The member that gave it may have waited since then, and takes over after `silence`."""
    mine = watch(A)
    lease = mine.take(0.0)
    mine.renew(0.0)
    mine.renew(10.0)
    mine.confirmed(lease_id(lease), 1)
    mine.confirmed(lease_id(lease), 0)
    assert mine.works(10.0 + TIMES.confirm - 0.1, alone=False), "an older answer takes nothing back"
    mine.confirmed(lease_id(lease), 7)
    assert not mine.works(10.0 + TIMES.confirm, alone=False), "nobody can know a renewal that was not made"


@given(st.lists(st.tuples(st.floats(0.0, 40.0), st.booleans()), min_size=1, max_size=30))
def test_an_owner_stops_before_the_only_member_that_heard_it_takes_over(events: list[tuple[float, bool]]) -> None:
    """Whatever is late or lost on the way: no moment in which both work, by one clock for both."""
    mine, other, now = watch(A), watch(B), 0.0
    lease = mine.take(now)
    shown = -1
    for passed, arrives in events:
        now += passed
        mine.renew(now)
        if arrives:
            if other.due(now, []):
                break
            other.learn(lease, mine.renewal, now)
            mine.confirmed(lease_id(lease), shown)  # the answer to the message before comes only now
            shown = other.number
        if mine.works(now, alone=False):
            assert not other.due(now, [])


def test_time_in_which_a_node_itself_stood_still_is_no_silence() -> None:
    looking = watch(C)
    looking.learn(FIRST, renew(A, FIRST, 0), 0.0)
    assert looking.due(200.0, [])
    looking.slept(190.0)
    assert not looking.due(200.0, []) and looking.due(190.0 + TIMES.silence, [])


def test_an_owner_that_is_distrusted_is_not_waited_for() -> None:
    looking = watch(C)
    looking.learn(FIRST, renew(A, FIRST, 0), 0.0)
    assert not looking.due(1.0, []) and looking.due(1.0, [], distrusted=True)


def test_a_proposed_lease_is_the_one_that_is_taken() -> None:
    looking = watch(C)
    proposed = looking.proposed()
    assert looking.lease is None
    assert looking.take(0.0) == proposed


def test_an_owner_that_nobody_confirms_falls_silent() -> None:
    mine = watch(A)
    lease = mine.take(0.0)
    mine.renew(0.0)
    mine.confirmed(lease_id(lease), 0)
    mine.renew(10.0)
    assert mine.number == 1
    mine.renew(TIMES.confirm)
    assert mine.number == 1


def test_others_take_over_after_silence_one_after_the_other() -> None:
    members = [one.peer_id for one in (A, B, C)]
    waiting = [watch(one) for one in (B, C)]
    for one in waiting:
        one.learn(FIRST, renew(A, FIRST, 0), 0.0)
        assert not one.due(TIMES.silence - 0.1, members)
    at = {
        one: next(now for now in range(1000) if each.due(float(now), members))
        for one, each in zip((B, C), waiting, strict=True)
    }
    assert min(at.values()) >= TIMES.silence
    assert abs(at[B] - at[C]) >= TIMES.turn
    waiting[0].learn(FIRST, renew(A, FIRST, 1), 29.0)
    assert not waiting[0].due(50.0, members), "a renewal begins the wait anew"


def test_a_frozen_owner_does_not_work_when_it_wakes() -> None:
    """Its own clock tells it, before it hears of a successor."""
    mine = watch(A)
    lease = mine.take(0.0)
    mine.confirmed(lease_id(lease), -1)
    assert not mine.works(120.0, alone=False)


def test_after_a_restart_a_node_begins_a_new_term() -> None:
    again = watch(A)
    again.restore(FIRST, 0.0)
    assert again.stopped and not again.works(0.0, alone=True)
    assert again.take(0.0).term == 1
    assert again.works(0.0, alone=True)


def test_an_owner_that_offered_its_lease_stops() -> None:
    mine, other = watch(A), watch(B)
    lease = mine.take(0.0)
    mine.confirmed(lease_id(lease), -1)
    other.learn(lease, None, 0.0)
    offered = mine.offer(B.peer_id)
    assert not mine.works(0.0, alone=False) and mine.stopped
    taken = other.accept(offered, A.peer_id, 0.0)
    assert other.mine and mine.learn(taken, None, 0.0) and not mine.mine
    with pytest.raises(ValueError, match="does not follow"):
        watch(B).accept(offered, A.peer_id, 0.0)


@given(st.sets(st.text("abcdef", min_size=1, max_size=5), min_size=1), st.text("xyz", min_size=1, max_size=3))
def test_the_order_of_turns_is_the_same_everywhere(members: set[str], name: str) -> None:
    assert turn_order(name, members) == turn_order(name, sorted(members, reverse=True))
