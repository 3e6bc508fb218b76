"""Vetoes against authors: who is excluded, whatever arrives when, and how nodes get to know."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from p2pnode.compression.weights import from_units
from p2pnode.merging.deltaset.chains import KEPT
from p2pnode.merging.deltaset.entry import Entry
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.deltaset.set import DeltaSet
from p2pnode.merging.deltaset.state import set_arrays, set_from
from p2pnode.merging.deltaset.vetoes import (
    REACH,
    Veto,
    check_veto,
    cuts_at,
    decode_vetoes,
    encode_vetoes,
    sign_veto,
)
from p2pnode.merging.policy import PolicySetup, RoundFacts
from tests.merging.deltaset.chains import AUTHORS, GENESIS, LINEAGE, RULES, chain, name

PEERS = [author.peer_id for author in AUTHORS]
MODERATED = replace(RULES, moderators=(PEERS[0],))


def veto(signer: int, author: int, deltas: DeltaSet, number: int = 0, active: bool = True) -> Veto:
    cuts = cuts_at(PEERS[author], deltas.heads) if active else ()
    plain = Veto(LINEAGE, "digits", PEERS[author], "", number, active, cuts, "it harms")
    return sign_veto(AUTHORS[signer], plain)


def filled(entries: list[Entry], rules: object = RULES) -> DeltaSet:
    deltas = DeltaSet(rules, GENESIS)  # type: ignore[arg-type]
    for entry in entries:
        deltas.add(entry)
    return deltas


def everybody(length: int = 5) -> list[Entry]:
    return [entry for author in range(4) for entry in chain(author, length)]


def test_a_moderator_excludes_alone() -> None:
    deltas = filled(everybody(), MODERATED)
    change = deltas.add_veto(veto(0, 3, deltas))
    assert len(change.removed) == 4  # who is an author has to stay known
    counted = [entry for entry in everybody() if entry.peer != PEERS[3] or entry.seq == 1]
    assert deltas.hash() == filled(counted).hash()
    assert deltas.add(chain(3, 6)[5]).verdict == "excluded"
    assert deltas.add(chain(3, 1, incarnation=2)[0]).verdict == "excluded"


def test_others_need_more_than_half() -> None:
    deltas = filled(everybody())
    deltas.add_veto(veto(0, 3, deltas))
    assert not deltas.log.excluded
    assert deltas.log.count_vetoes(PEERS[3]).needed == 2
    deltas.add_veto(veto(1, 3, deltas))
    assert deltas.log.excluded == {PEERS[3]}


def test_a_veto_can_be_withdrawn() -> None:
    deltas = filled(everybody(), MODERATED)
    before = deltas.hash()
    deltas.add_veto(veto(0, 3, deltas))
    deltas.add_veto(veto(0, 3, deltas, number=1, active=False))
    for entry in chain(3, 5):
        deltas.add(entry)
    assert deltas.hash() == before
    assert not deltas.log.excluded


def test_a_veto_takes_out_what_every_node_still_keeps() -> None:
    deltas = filled(chain(3, 100), MODERATED)
    deltas.add_veto(veto(0, 3, deltas))
    assert deltas.heads == {name(3): 100 - REACH}
    assert REACH < KEPT


def test_a_veto_also_takes_out_what_waits_for_an_authors_first_entry() -> None:
    first, second, third = chain(3, 3)
    deltas = filled([*chain(0, 1), second, third], MODERATED)
    deltas.add_veto(veto(0, 3, filled([first, second, third])))
    deltas.add(first)
    assert deltas.heads[name(3)] == 1


def test_an_excluded_author_whose_first_entry_comes_later_counts_among_those_who_vote() -> None:
    deltas = filled(chain(0, 1))
    for author in (1, 2, 3):  # as long as node 0 is the only author, its veto is all that is needed
        deltas.add_veto(veto(0, author, filled(everybody())))
    assert deltas.log.excluded == set(PEERS[1:])
    for entry in everybody():
        deltas.add(entry)
    assert not deltas.log.excluded


@settings(max_examples=30)
@given(st.integers(0, 1 << 30))
def test_whatever_arrives_when_the_sets_are_equal(seed: int) -> None:
    rng = random.Random(seed)
    everything = everybody(8)
    known = filled(everything)
    signed: list[Entry | Veto] = []
    for number in range(rng.randrange(1, 8)):
        signer, author = rng.sample(range(4), 2)
        signed.append(veto(signer, author, known, number, rng.random() < 0.7))
    sets = [filled([]), filled([])]
    for deltas in sets:
        mixed = [*everything, *signed]
        rng.shuffle(mixed)
        for one in (*mixed, *everything, *signed, *everything):
            if isinstance(one, Veto):
                deltas.add_veto(one)
            else:
                deltas.add(one)
    assert sets[0].log.digest() == sets[1].log.digest()
    assert sets[0].hash() == sets[1].hash()


def test_digests_differ_until_everybody_knows_a_veto() -> None:
    one, other = filled(everybody()), filled(everybody())
    one.add_veto(veto(0, 3, one))
    assert one.log.digest() != other.log.digest()


def test_vetoes_of_strangers_against_oneself_or_of_other_circles() -> None:
    deltas = filled(chain(0, 2))
    assert deltas.add_veto(veto(1, 0, deltas)).verdict == "known"
    assert not deltas.log.vetoes
    good = veto(0, 1, deltas)
    assert not check_veto(good, RULES)
    assert check_veto(good, replace(RULES, lineage=b"x" * 32)) == "a veto of another circle"
    forged = structs.replace(good, reason="another reason")
    assert "did not sign" in check_veto(forged, RULES)
    assert deltas.add_veto(forged).verdict == "refused"
    assert "oneself" in check_veto(veto(0, 0, deltas), RULES)


def test_vetoes_survive_bytes_and_a_restart() -> None:
    deltas = filled(everybody(), MODERATED)
    deltas.add_veto(veto(0, 3, deltas))
    assert decode_vetoes(encode_vetoes(deltas.log.vetoes)) == deltas.log.vetoes
    again = set_from(set_arrays(deltas), MODERATED)
    assert again.log.digest() == deltas.log.digest()
    assert again.log.excluded == {PEERS[3]}


@given(st.binary(max_size=100))
def test_any_bytes_are_vetoes_or_refused(data: bytes) -> None:
    try:
        decode_vetoes(data)
    except ValueError:
        return


def policy(author: int) -> DeltaSetPolicy:
    moderators = (PEERS[0],)
    return DeltaSetPolicy(
        PolicySetup(GENESIS, AUTHORS[author], LINEAGE.hex(), "digits", "layout", {}, 1, moderators=moderators)
    )


def publish(one: DeltaSetPolicy) -> bytes:
    begun = one.start()
    return one.publish(one.record(begun, begun + from_units(GENESIS) * 0.01, RoundFacts(5, 1.0, 10, 4)))


def exchange(one: DeltaSetPolicy, other: DeltaSetPolicy) -> None:
    me, them = one.author.identity.peer_id, other.author.identity.peer_id
    push = one.take(them, other.answer(me, one.ask(them)))
    if push:
        other.take(me, push)


def test_a_ban_spreads_with_entries_and_the_banned_author_publishes_nothing_more() -> None:
    swarm = [policy(number) for number in range(4)]
    for _ in range(3):
        for one in swarm:
            publish(one)
            for other in swarm:
                if other is not one:
                    exchange(one, other)
    count = swarm[0].veto(PEERS[3], True, "sends noise")
    assert count.excluded and count.reasons == ("sends noise",)
    exchange(swarm[0], swarm[1])
    exchange(swarm[2], swarm[1])
    exchange(swarm[3], swarm[2])
    assert len({one.set.log.digest() for one in swarm}) == 1
    assert len({one.set.hash() for one in swarm}) == 1
    assert swarm[2].vetoes()[PEERS[3]].excluded
    assert publish(swarm[3]) == b""
    swarm[0].veto(PEERS[3], False, "")
    exchange(swarm[0], swarm[3])
    assert publish(swarm[3]) != b""


@pytest.mark.parametrize("number", [1, 2])
def test_a_newcomer_gets_the_vetoes_with_the_snapshot(number: int) -> None:
    giver, newcomer = policy(0), policy(number)
    other = policy(3)
    publish(giver)
    publish(other)
    exchange(giver, other)
    giver.veto(PEERS[3], True, "")
    snapshot = giver.snapshot()
    assert snapshot is not None
    newcomer.adopt(snapshot)
    assert newcomer.set.log.excluded == {PEERS[3]}
    assert newcomer.digest() == giver.digest()
