"""Who may be an author: members admit newcomers, no faster than they publish."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from p2pnode.compression.weights import from_units
from p2pnode.merging.deltaset.admission import (
    MAX_ADMITTED,
    WORK,
    decode_admitted,
    encode_admitted,
    may_admit,
)
from p2pnode.merging.deltaset.citations import decode_citations, encode_citations
from p2pnode.merging.deltaset.entry import Entry, sign_entry
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.deltaset.set import DeltaSet
from p2pnode.merging.policy import PolicySetup, RoundFacts
from p2pnode.wire.ids import Identity
from tests.merging.deltaset.chains import GENESIS, LINEAGE, RULES, SIZE

PEOPLE = [Identity(bytes([50 + number]) * 32) for number in range(12)]
PEERS = [one.peer_id for one in PEOPLE]
RULED = replace(RULES, layers=(SIZE,), roots=(PEERS[0],))


def policy(number: int) -> DeltaSetPolicy:
    return DeltaSetPolicy(
        PolicySetup(GENESIS, PEOPLE[number], LINEAGE.hex(), "digits", "layout", {"admission": 1.0}, 1, founder=PEERS[0])
    )


def publish(one: DeltaSetPolicy) -> bytes:
    begun, rng = one.start(), np.random.default_rng(one.author.rounds)
    after = begun + from_units(GENESIS) * rng.normal(0, 0.01, SIZE).astype(np.float32)
    return one.publish(one.record(begun, after, RoundFacts(5, 1.0, 10, 4)))


def exchange(one: DeltaSetPolicy, other: DeltaSetPolicy) -> None:
    if one is other:
        return
    me, them = one.author.identity.peer_id, other.author.identity.peer_id
    push = one.take(them, other.answer(me, one.ask(them)))
    if push:
        other.take(me, push)


def settled(count: int = 4, rounds: int = 10) -> list[DeltaSetPolicy]:
    """Members that all publish and know each other."""
    swarm = [policy(number) for number in range(count)]
    for _ in range(rounds):
        for one in swarm:
            publish(one)
            for other in swarm:
                if other is not one:
                    exchange(one, other)
    return swarm


@given(st.sets(st.sampled_from(PEERS), max_size=8))
def test_admitted_peers_survive_bytes(peers: set[str]) -> None:
    assert set(decode_admitted(encode_admitted(peers))) == peers


@pytest.mark.parametrize("data", [b"x", b"x" * 33, b"b" * 32 + b"a" * 32, b"a" * 64])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="admitted peers"):
        decode_admitted(data)


def test_the_founder_admits_several_and_others_one_with_every_fourth_entry() -> None:
    assert may_admit("a", 1, ("a",)) == MAX_ADMITTED
    assert [seq for seq in range(1, 30) if may_admit("b", seq, ("a",))] == list(range(WORK, 30, WORK))
    assert may_admit("b", 5, ("a", "b", "c")) == 2


def arrived(swarm: list[DeltaSetPolicy], number: int) -> DeltaSetPolicy:
    """A newcomer that took a member's snapshot."""
    newcomer, snapshot = policy(number), swarm[1].snapshot()
    assert snapshot is not None
    newcomer.adopt(snapshot)
    return newcomer


def test_a_newcomer_publishes_once_it_is_admitted() -> None:
    swarm = settled()
    newcomer = arrived(swarm, 7)
    exchange(newcomer, swarm[1])  # the second member knows it, and is not due to admit anybody
    publish(swarm[1])
    exchange(newcomer, swarm[1])
    assert publish(newcomer) == b""
    exchange(newcomer, swarm[0])
    publish(swarm[0])
    exchange(newcomer, swarm[0])
    assert publish(newcomer) != b""
    for _ in range(3):
        for other in swarm:
            for one in (newcomer, *swarm[:2]):  # members leave it to authors to pass on their latest entries
                exchange(one, other)
    assert PEERS[7] in swarm[2].authors()


def test_what_waits_for_admission_is_not_lost() -> None:
    swarm = settled()
    newcomer = arrived(swarm, 7)
    exchange(newcomer, swarm[1])
    before = newcomer.start()
    publish(newcomer)
    assert np.count_nonzero(newcomer.author.residual)
    assert not np.array_equal(newcomer.start(), before)  # it trains on from what it learned, and evaluates that
    newcomer.merge()
    assert not np.array_equal(newcomer.readout(), before)
    again = policy(7)
    again.restore(newcomer.state(), [])
    assert np.array_equal(again.start(), newcomer.start())


def test_made_up_authors_and_those_who_pass_them_on() -> None:
    swarm = settled()
    ghost = sign_entry(PEOPLE[9], Entry(LINEAGE, "digits", "?", 0, 1, bytes(32), payload=_payload(swarm[0])))
    change = swarm[1].set.add(ghost)
    assert (change.verdict, change.reason[:26]) == ("uncounted", "its author is not admitted")
    assert not swarm[1].set.log.waiting


def test_an_admitted_author_cannot_begin_by_citing_nothing() -> None:
    swarm = settled()
    newcomer = arrived(swarm, 7)
    exchange(newcomer, swarm[0])
    publish(swarm[0])
    exchange(newcomer, swarm[0])
    first = sign_entry(PEOPLE[7], Entry(LINEAGE, "digits", "?", 0, 1, bytes(32), payload=_payload(swarm[0]), credit=48))
    assert swarm[0].set.log.add(first).verdict == "uncounted"


def test_nobody_admits_more_than_it_may() -> None:
    young = DeltaSet(RULED, GENESIS)
    assert not young.log.judge.admits(PEERS[3])
    entry = Entry(LINEAGE, "digits", "?", 0, 1, bytes(32), payload=_payload(policy(0)), credit=48)
    founder = sign_entry(PEOPLE[0], structs.replace(entry, admits=encode_admitted(PEERS[3:7])))
    assert young.add(founder).verdict == "added"
    greedy = sign_entry(PEOPLE[3], structs.replace(entry, admits=encode_admitted(PEERS[7:9])))
    assert "admits 2 newcomers" in young.add(greedy).reason
    assert young.log.judge.is_author(PEERS[5]) and not young.log.judge.is_author(PEERS[8])


def _payload(one: DeltaSetPolicy, progress: float = 0.001) -> bytes:
    begun = one.start()
    draft = one.record(begun, begun + np.float32(progress), RoundFacts(5, 1.0, 10, 4))
    return draft.payload


def test_an_author_that_signs_two_versions_of_an_entry_cannot_split_the_set() -> None:
    """Others' entries cite it, and are judged differently by who has which version; claims show the fork."""
    swarm = settled(6)
    liar = swarm[5]
    with liar._lock:
        terms = liar.author.terms(liar.set, liar.set.heads)
        plain = liar.author.empty_entry(liar.set, terms)
    versions = [
        sign_entry(PEOPLE[5], structs.replace(plain, payload=payload, cited=cited))
        for payload, cited in ((_payload(liar), plain.cited), (_payload(swarm[0], 0.00001), _later(plain.cited)))
    ]
    for number, one in enumerate(swarm[:5]):
        one.set.add(versions[number % 2], judged=number % 2 == 1)
    for _ in range(40):
        for one in swarm[:5]:
            publish(one)
            for other in swarm[:5]:
                exchange(one, other)
    for _ in range(3):
        for one in swarm[:5]:
            for other in swarm[:5]:
                exchange(one, other)
    assert len({one.digest() for one in swarm[:5]}) == 1
    assert len({one.set.hash() for one in swarm[:5]}) == 1
    assert swarm[0].set.log.exclusions
    assert min(one.set.heads[one._own_chain] for one in swarm[:5]) > 20


def _later(cited: bytes) -> bytes:
    """Citations of entries that do not exist yet, so that those who cite the citing entry seem to overlook them."""
    return encode_citations({name: one._replace(seq=one.seq + 30) for name, one in decode_citations(cited).items()})
