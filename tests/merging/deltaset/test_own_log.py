"""When a node goes on with the log of its disk after a start, and what a weight at the edge of the grid costs."""

from __future__ import annotations

import numpy as np
import pytest

from p2pnode.compression.codec import encode_delta
from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.weights import MAX_UNITS, to_units
from p2pnode.merging.deltaset.author import Draft
from p2pnode.merging.deltaset.entry import Chain
from p2pnode.merging.deltaset.own_log import CONFIRMATIONS, OwnLog
from p2pnode.merging.deltaset.policy import FAR_OUT, DeltaSetPolicy
from p2pnode.merging.policy import PolicySetup, RoundFacts
from p2pnode.wire.ids import Identity, PeerId

ME, OTHER, THIRD = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
MINE = Chain(ME.peer_id, 0)
HEADS = {MINE: 7, Chain(OTHER.peer_id, 0): 3}
SIZE = 400


def partner(number: int) -> PeerId:
    return PeerId(f"partner {number}")


def test_a_new_log_and_one_that_nobody_else_can_know_go_on_at_once() -> None:
    log = OwnLog()
    assert log.confirmed(0, peers=5)
    log.resumed(MINE, {MINE: 7})
    assert log.confirmed(7, peers=1)
    log.resumed(MINE, HEADS)
    assert not log.confirmed(7, peers=5)
    log.begun_anew()
    assert log.confirmed(0, peers=5)


@pytest.mark.parametrize(("peers", "needed"), [(1, 1), (2, 1), (3, 2), (4, 3), (16, CONFIRMATIONS)])
def test_a_resumed_log_goes_on_once_enough_partners_know_no_more_of_it(peers: int, needed: int) -> None:
    log = OwnLog()
    log.resumed(MINE, HEADS)
    for number in range(needed):
        assert not log.confirmed(7, peers)
        log.heard(partner(number), MINE, {MINE: 7 - number})
    assert log.confirmed(7, peers)


def test_a_partner_that_knows_more_holds_it_up_until_the_entries_are_here() -> None:
    log = OwnLog()
    log.resumed(MINE, HEADS)
    log.heard(partner(1), MINE, {MINE: 9})
    assert not log.confirmed(7, peers=2)
    assert not log.confirmed(8, peers=2)
    assert log.confirmed(9, peers=2)


def policy(identity: Identity) -> DeltaSetPolicy:
    genesis = to_units(np.random.default_rng(5).normal(0, 0.1, SIZE).astype(np.float32))
    return DeltaSetPolicy(PolicySetup(genesis, identity, "ab" * 32, "main", "cd" * 32, {}, 1))


def publish(author: DeltaSetPolicy, seed: int) -> bytes:
    begun = author.start()
    progress = np.random.default_rng(seed).normal(0, 0.01, SIZE).astype(np.float32)
    return author.publish(author.record(begun, begun + progress, RoundFacts(5, 1.0, 160, 2)))


def exchange(one: DeltaSetPolicy, other: DeltaSetPolicy) -> None:
    me, you = one.author.identity.peer_id, other.author.identity.peer_id
    push = one.take(you, other.answer(me, one.ask(you)))
    if push:
        other.take(me, push)


def test_a_policy_that_was_set_back_takes_its_own_entries_from_a_partner_and_forks_nothing() -> None:
    author, friend = policy(ME), policy(OTHER)
    publish(author, 1)
    publish(friend, 2)
    exchange(author, friend)
    saved = author.state()
    publish(author, 3)
    exchange(author, friend)

    again = policy(ME)
    again.restore(saved, [])
    assert not again.log_confirmed(peers=2)
    exchange(again, friend)
    assert again.log_confirmed(peers=2)
    publish(again, 4)
    exchange(again, friend)
    assert friend.set.log.exclusions == {}
    assert friend.set.heads[MINE] == 3
    assert friend.set.hash() == again.set.hash()


def test_what_is_kept_back_is_published_later() -> None:
    author = policy(ME)
    begun = author.start()
    author.keep(begun, begun + np.float32(0.01))
    assert np.count_nonzero(author.author.residual) == SIZE
    assert author.publish(author.record(begun, begun, RoundFacts(5, 1.0, 160, 2)))
    assert np.count_nonzero(author.author.residual) < SIZE


def test_a_weight_that_somebody_pushed_to_the_edge_stops_nobody() -> None:
    author, liar = policy(ME), policy(THIRD)
    value = min(MAX_UNITS, int(0.9 * liar.set.rules.max_norm_units))
    one = SparseDelta(SIZE, np.array([7], np.uint32), np.array([value], np.int32))
    begun = liar.start()
    draft = liar.record(begun, begun + np.float32(0.01), RoundFacts(5, 1.0, 160, 2))
    forged = Draft(one, encode_delta(one), draft.residual, draft.trained, draft.facts, draft.progress, draft.weight)
    with liar._lock:
        while abs(int(liar.set.units[7])) < MAX_UNITS:
            liar._add_own(liar.author.sign(forged, liar.set, liar.author.terms(liar.set, {})))
    for entry in liar.set.log:
        assert author.set.add(entry).verdict == "added"
    start = author.start()
    assert np.abs(start).max() <= FAR_OUT
    after = start - np.float32(0.5) * (np.arange(SIZE) == 7) * np.sign(author.set.units[7])
    before = abs(int(author.set.units[7]))
    assert author.publish(author.record(start, after.astype(np.float32), RoundFacts(5, 1.0, 160, 2)))
    assert abs(int(author.set.units[7])) < before, "it comes back"
