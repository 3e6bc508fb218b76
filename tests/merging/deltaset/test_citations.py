"""What entries cite, and the rules that follow: whatever arrives when, the same entries count everywhere."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from p2pnode.compression.codec import encode_delta
from p2pnode.compression.delta import SparseDelta
from p2pnode.merging.deltaset.bounds import cut_to
from p2pnode.merging.deltaset.citations import (
    COST,
    CREDIT,
    FIRST_CREDIT,
    GAIN,
    IDLE,
    LOGS,
    Citation,
    check_closed,
    check_sequel,
    cite,
    credit_after,
    decode_citations,
    encode_citations,
    name_of,
)
from p2pnode.merging.deltaset.entry import Chain, Entry, prove, sign_entry
from p2pnode.merging.deltaset.log import Change
from p2pnode.merging.deltaset.set import DeltaSet
from p2pnode.wire.ids import Identity
from tests.merging.deltaset.chains import GENESIS, RULES, SIZE

AUTHORS = [Identity(bytes([100 + number]) * 32) for number in range(6)]
BOUNDED = replace(RULES, layers=(SIZE // 2, SIZE - SIZE // 2))
NAMES = [name_of(author.peer_id) for author in AUTHORS]

citations = st.dictionaries(
    st.binary(min_size=5, max_size=5),
    st.builds(Citation, st.integers(0, 1023), st.integers(1, (1 << 31) - 1), st.integers(0, 7), st.integers(0, 3)),
    max_size=64,
)


@dataclass
class Member:
    """An author with a set of its own. Its latest entries cite what it knew at the one before."""

    number: int
    deltas: DeltaSet
    known: dict[Chain, int]

    def publish(self, seed: int, large: int = 1, honest: bool = True) -> Entry | None:
        chain, rules = Chain(AUTHORS[self.number].peer_id, 0), self.deltas.rules
        cited, credit, limits = self.deltas.log.judge.cite(chain, self.known or self.deltas.heads)
        if credit < 0 and honest:
            return None
        rng = np.random.default_rng(seed)
        places = np.sort(rng.choice(SIZE, 6, replace=False)).astype(np.uint32)
        delta = SparseDelta(SIZE, places, (large * rng.integers(-900, 900, 6)).astype(np.int32))
        payload = encode_delta(cut_to(delta, limits, rules.layers) if honest else delta)
        place = self.deltas.log.next_place(chain)
        plain = Entry(rules.lineage, rules.model, *chain, *place, payload=payload, credit=max(0, credit))
        entry = sign_entry(AUTHORS[self.number], structs.replace(plain, cited=encode_citations(cited)))
        self.known = dict(self.deltas.heads)
        self.deltas.add(entry, judged=True)  # what it made itself it believes, hostile or not
        return entry


def members(count: int = 5) -> list[Member]:
    return [Member(number, DeltaSet(BOUNDED, GENESIS), {}) for number in range(count)]


def exchange(one: Member, other: Member) -> None:
    for entry in list(one.deltas.log):
        other.deltas.add(entry)


def history(rng: random.Random, rounds: int, hostile: int = 0) -> list[Entry]:
    """Entries of five members that publish and exchange at random; the last `hostile` ones break the rules."""
    swarm, made = members(), []
    for number in range(rounds):
        author = rng.choice(swarm)
        honest = author.number < len(swarm) - hostile
        entry = author.publish(number, 1 if honest else rng.choice([1, 1000]), honest)
        made += [entry] if entry is not None else []
        for _ in range(3):
            exchange(*rng.sample(swarm, 2))
    return made


def deliver_until_stable(entries: list[Entry], rng: random.Random, extra: list[object] = []) -> DeltaSet:  # noqa: B006
    """A set that gets everything in a random order, again and again, as partners offer what it lacks."""
    deltas, before = DeltaSet(BOUNDED, GENESIS), b""
    proofs = list(extra)
    while before != deltas.log.digest():
        before = deltas.log.digest()
        mixed: list[object] = [*entries, *proofs]
        rng.shuffle(mixed)
        for one in mixed:
            if isinstance(one, Entry):
                deltas.add(one)
            else:
                deltas.add_proof(one)  # type: ignore[arg-type]
    return deltas


@given(citations)
def test_citations_survive_the_wire(cited: dict[bytes, Citation]) -> None:
    assert decode_citations(encode_citations(cited)) == cited


@given(st.binary(max_size=200))
def test_any_bytes_are_citations_or_refused(data: bytes) -> None:
    try:
        cited = decode_citations(data)
    except ValueError:
        return
    assert encode_citations(cited) == data


@settings(max_examples=25)
@given(st.integers(0, 1 << 30), st.integers(0, 2))
def test_the_same_entries_count_whatever_the_order(seed: int, hostile: int) -> None:
    rng = random.Random(seed)
    entries = history(rng, 40, hostile)
    one, other = deliver_until_stable(entries, rng), deliver_until_stable(entries, rng)
    assert one.log.digest() == other.log.digest()
    assert one.hash() == other.hash()


@settings(max_examples=15)
@given(st.integers(0, 1 << 30))
def test_exclusions_that_arrive_at_any_time_end_in_the_same_set(seed: int) -> None:
    """Entries cite those of an author that is excluded later, or was excluded before they came."""
    rng = random.Random(seed)
    entries = history(rng, 40, 1)
    liars = [entry for entry in entries if entry.peer == AUTHORS[4].peer_id]
    if not liars:
        return
    forked = rng.choice(liars)
    rival = sign_entry(AUTHORS[4], structs.replace(forked, steps=forked.steps + 1, signature=b""))
    proofs: list[object] = [prove(forked, rival)]
    one, other = deliver_until_stable(entries, rng, proofs), deliver_until_stable(entries, rng)
    other.add_proof(proofs[0])  # type: ignore[arg-type]
    for entry in entries:
        other.add(entry)
    assert one.log.digest() == other.log.digest()
    assert one.hash() == other.hash()


def test_honest_members_all_count() -> None:
    rng = random.Random(5)
    entries = history(rng, 60)
    assert sum(deliver_until_stable(entries, rng).heads.values()) == len(entries) > 40


def busy() -> list[Member]:
    """Members that have each published several times and know everything."""
    swarm = members()
    for number in range(30):
        swarm[number % 5].publish(number)
        for other in swarm:
            exchange(swarm[number % 5], other)
    return swarm


def offered(swarm: list[Member], entry: Entry | None) -> Change:
    assert entry is not None
    return swarm[0].deltas.add(entry)


def test_an_entry_larger_than_the_others_does_not_count() -> None:
    swarm = busy()
    found = offered(swarm, swarm[4].publish(99, large=100, honest=False))
    assert (found.verdict, found.reason[:27]) == ("uncounted", "it is larger than 1.5 times")


def test_the_first_entry_of_a_newcomer_is_bounded_too() -> None:
    swarm = busy()
    newcomer = Member(5, DeltaSet(BOUNDED, GENESIS), {})
    exchange(swarm[0], newcomer)
    found = offered(swarm, newcomer.publish(7, large=100, honest=False))
    assert found.verdict == "uncounted"
    assert offered(busy(), _after(swarm[0], newcomer.number).publish(7, large=100)).verdict == "added"


def _after(member: Member, number: int) -> Member:
    newcomer = Member(number, DeltaSet(BOUNDED, GENESIS), {})
    exchange(member, newcomer)
    return newcomer


def test_a_member_that_publishes_alone_has_to_wait() -> None:
    swarm = busy()
    counted = 0
    while (entry := swarm[4].publish(200 + counted)) is not None:
        assert offered(swarm, entry).verdict == "added"
        counted += 1
    assert 1 <= counted <= CREDIT // COST
    forced = swarm[4].publish(300, honest=False)
    assert offered(swarm, forced).verdict == "uncounted"


def test_an_entry_waits_for_what_it_cites() -> None:
    swarm = busy()
    entries = list(swarm[0].deltas.log)
    late = next(entry for entry in entries if entry.seq == 3)
    fresh = DeltaSet(BOUNDED, GENESIS)
    for entry in entries:
        if entry != late:
            fresh.add(entry)
    assert sum(fresh.heads.values()) < len(entries) - 1
    assert fresh.log.waiting > 0
    fresh.add(late)
    for entry in entries:
        fresh.add(entry)
    assert fresh.log.digest() == swarm[0].deltas.log.digest()


def test_citations_go_on_where_they_were() -> None:
    a, b = NAMES[:2]
    before = {a: Citation(0, 4), b: Citation(0, 9, idle=2)}
    assert not check_sequel({a: Citation(0, 5), b: Citation(0, 9, idle=3)}, before, ())
    assert "less" in check_sequel({a: Citation(0, 5)}, before, ())
    assert not check_sequel({a: Citation(0, 5)}, before, {b})
    assert "less" in check_sequel({a: Citation(0, 3), b: Citation(0, 9, idle=3)}, before, ())
    assert "silent" in check_sequel({a: Citation(0, 5), b: Citation(0, 9)}, before, ())
    assert cite({a: (1, 1), b: (0, 9)}, before) == {a: Citation(1, 1), b: Citation(0, 9, idle=3)}


def test_what_cited_entries_cite_must_not_be_overlooked() -> None:
    own, a, b = NAMES[:3]
    others = [{own: Citation(0, 3), b: Citation(0, 6)}]
    assert not check_closed({a: Citation(0, 2), b: Citation(0, 6)}, others, own, ())
    assert "overlooks" in check_closed({a: Citation(0, 2), b: Citation(0, 5)}, others, own, ())
    assert "overlooks" in check_closed({a: Citation(0, 2)}, others, own, ())
    assert not check_closed({a: Citation(0, 2)}, others, own, {b})


@pytest.mark.parametrize(("published", "gained"), [(0, -COST), (2, 0), (4, GAIN - COST)])
def test_half_of_the_others_have_to_publish_for_each_entry(published: int, gained: int) -> None:
    before = {name: Citation(0, 5) for name in NAMES[:4]}
    cited = {
        name: Citation(0, 6) if number < published else Citation(0, 5, idle=1) for number, name in enumerate(before)
    }
    assert credit_after(cited, before, 40) == 40 + gained
    assert credit_after(cited, None, 0) == FIRST_CREDIT


def test_new_logs_have_no_credit_and_are_limited_by_what_the_others_published() -> None:
    cited = {name: Citation(0, 5) for name in NAMES[:4]}
    assert [credit_after(cited, None, number) for number in (1, LOGS + 5, LOGS + 6)] == [0, 0, -COST]
    assert credit_after({}, None, 100) == 0


def test_members_that_are_gone_no_longer_count() -> None:
    before = {name: Citation(0, 5, idle=IDLE) for name in NAMES[:4]} | {NAMES[4]: Citation(0, 8)}
    cited = {**before, NAMES[4]: Citation(0, 9)}
    assert credit_after(cited, before, 0) == GAIN - COST
