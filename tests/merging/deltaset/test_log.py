"""Single chains: gaps wait, duplicates are known, bad entries are refused, memory is bounded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from p2pnode.compression.codec import encode_delta
from p2pnode.merging.deltaset import log as log_module
from p2pnode.merging.deltaset.chains import Waiting, droppable
from p2pnode.merging.deltaset.entry import Entry, ForkProof, entry_id, prove, read_proof
from p2pnode.merging.deltaset.heads import Span
from p2pnode.merging.deltaset.log import EntrySet
from tests.merging.deltaset.chains import AUTHORS, RULES, alike, chain, deliver, delta, entry, name, set_of

CHAIN = chain(0, 6)
TAIL = chain(0, 2, seed=9, after=CHAIN[2])


def added(*entries: Entry) -> EntrySet:
    log = EntrySet(RULES)
    for one in entries:
        log.add(one)
    return log


def test_entries_in_order_are_added_and_then_known() -> None:
    log = EntrySet(RULES)
    assert [log.add(one).verdict for one in CHAIN] == ["added"] * 6
    assert [log.add(one).verdict for one in CHAIN] == ["known"] * 6
    assert log.heads == {name(0): 6}
    assert log.tips == {name(0): entry_id(CHAIN[5])}


def test_an_early_entry_waits_and_follows_when_the_gap_closes() -> None:
    log = EntrySet(RULES)
    assert log.add(CHAIN[2]).reason == "2 entries before it are missing"
    assert log.add(CHAIN[1]).verdict == "gap"
    assert log.heads == {}
    change = log.add(CHAIN[0])
    assert (change.verdict, change.added) == ("added", tuple(CHAIN[:3]))


def test_many_waiting_entries_follow_at_once() -> None:
    long = chain(1, 250)
    log = added(*reversed(long))
    assert log.heads == {name(1): 250}


def test_two_entries_of_one_seq_are_a_fork_and_the_proof_is_kept() -> None:
    log = added(*CHAIN)
    change = log.add(TAIL[0])
    assert (change.verdict, change.removed) == ("fork", tuple(CHAIN[3:]))
    assert log.proofs == {name(0): change.proof}
    assert change.proof is not None
    assert read_proof(change.proof, RULES) == (name(0), 4)
    assert log.add(CHAIN[4]).verdict == "excluded"
    assert log.add_proof(change.proof).verdict == "known"


def test_a_fork_among_waiting_entries_is_found_too() -> None:
    log = added(TAIL[0])
    assert log.add(CHAIN[3]).verdict == "fork"
    assert log.exclusions == {name(0): 4}
    assert [log.add(one).verdict for one in CHAIN[:4]] == ["added"] * 3 + ["excluded"]


def test_proofs_convince_strangers_and_only_when_they_hold() -> None:
    proof = prove(CHAIN[3], TAIL[0])
    log = EntrySet(RULES)
    assert log.add_proof(proof).verdict == "fork"
    assert log.exclusions == {name(0): 4}
    strange = chain(1, 1)[0]
    for bad, reason in [
        (prove(CHAIN[3], CHAIN[3]), "contradict"),
        (prove(CHAIN[2], CHAIN[3]), "contradict"),
        (prove(CHAIN[1], CHAIN[3]), "contradict"),
        (prove(CHAIN[3], strange), "different chains"),
        (prove(CHAIN[3], msgspec.structs.replace(TAIL[0], signature=bytes(64))), "signature"),
        (prove(CHAIN[0], entry(0, None, 5, lineage=b"o" * 32)), "another lineage"),
        (ForkProof(msgspec.structs.replace(proof.first, content=b"no"), proof.second), "not a claim"),
    ]:
        assert reason in EntrySet(RULES).add_proof(bad).reason


def test_the_earliest_fork_counts() -> None:
    early, late = prove(CHAIN[1], chain(0, 1, seed=11, after=CHAIN[0])[0]), prove(CHAIN[3], TAIL[0])
    for order in ((early, late), (late, early)):
        log = added(*CHAIN)
        for proof in order:
            log.add_proof(proof)
        assert log.exclusions == {name(0): 2}
        assert log.heads == {name(0): 1}


BENT: dict[str, tuple[Any, str]] = {
    "lineage": (b"o" * 32, "another lineage"),
    "model": ("other", "another lineage or model"),
    "gamma": (4.5, "gamma"),
    "discount": (0.0, "discount"),
    "group": (0, "circle of 0"),
    "steps": (10_001, "steps"),
    "kind": (1, "the lineage it is with"),
    "seq": (2, "only the first"),
    "previous": (b"p" * 32, "only the first"),
    "payload": (b"\x07" * 30, "payload: payload version 7"),
}


@pytest.mark.parametrize("field", BENT)
def test_entries_that_break_a_rule_are_refused_by_name(field: str) -> None:
    value, reason = BENT[field]
    change = EntrySet(RULES).add(entry(0, None, 1, **{field: value}))
    assert change.verdict == "refused"
    assert reason in change.reason


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(bad: float) -> None:
    facts = msgspec.structs.replace(CHAIN[0].facts, loss=bad)
    assert "facts" in EntrySet(RULES).add(entry(0, None, 1, facts=facts)).reason
    assert "gamma" in EntrySet(RULES).add(entry(0, None, 1, gamma=bad)).reason


def test_huge_norms_and_payloads_are_refused() -> None:
    far = encode_delta(delta(1, 20, 1 << 29))
    assert "norm" in EntrySet(RULES).add(entry(0, None, 1, payload=far)).reason
    assert "payload over" in EntrySet(RULES).add(entry(0, None, 1, payload=bytes(1 << 20))).reason
    many = encode_delta(delta(1, 25))
    assert "at most 20" in EntrySet(RULES).add(entry(0, None, 1, payload=many)).reason


def test_no_signed_field_can_be_changed() -> None:
    whole = entry(0, None, 1)
    changes = {"steps": 11, "gamma": 2.0, "group": 3, "payload": encode_delta(delta(2)), "incarnation": 1}
    for field, value in changes.items():
        bent = msgspec.structs.replace(whole, **{field: value})
        assert EntrySet(RULES).add(bent).reason == "signature is not valid"
    stolen = msgspec.structs.replace(whole, peer=AUTHORS[1].peer_id)
    assert EntrySet(RULES).add(stolen).reason == "signature is not valid"


def test_waiting_is_bounded_and_keeps_what_is_needed_first() -> None:
    waiting = Waiting(most=3)
    for one in reversed(CHAIN):
        waiting.put(one)
    assert [waiting.get(name(0), seq) is not None for seq in range(1, 7)] == [True] * 3 + [False] * 3
    small = Waiting(most_bytes=2 * len(CHAIN[0].payload))
    for one in CHAIN:
        small.put(one)
        small.put(one)
    assert sum(small.get(name(0), seq) is not None for seq in range(1, 7)) <= 2


def test_chains_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MAX_CHAINS", 2)
    log = added(*chain(0, 1), *chain(1, 1))
    assert "more than 2 chains" in log.add(chain(2, 1)[0]).reason
    assert log.add(chain(1, 2)[1]).verdict == "added"


# ---- dropping ----


def test_dropped_entries_are_still_known_and_the_chain_goes_on() -> None:
    log = added(*CHAIN[:5])
    digest = log.digest()
    assert log.drop({name(0): 4}) == 4
    assert log.digest() == digest
    assert log.add(CHAIN[0]).verdict == "known"
    assert log.add(CHAIN[5]).verdict == "added"
    assert list(log) == CHAIN[4:]
    assert log.dropped() == {name(0): 4}
    assert log.can_serve({name(0): 4})
    assert not log.can_serve({name(0): 3})
    assert log.entries(Span(name(0), 1, 5)) == [CHAIN[4]]


def test_a_fork_behind_what_is_kept_leaves_out_what_can_be_taken_back() -> None:
    """The exclusions then differ for all to see, and the one that took back more is the one to take over from."""
    log = added(*CHAIN)
    log.drop({name(0): 4})
    log.add_proof(prove(CHAIN[3], TAIL[0]))
    assert log.exclusions == {name(0): 5}
    assert log.heads == {name(0): 4}


def test_retention_keeps_enough_for_stragglers_and_ones_own_until_two_have_it() -> None:
    me = AUTHORS[0].peer_id
    heads = {name(0): 100, name(1): 100, name(2): 10}
    assert droppable(heads, heads, "nobody", [], kept=20) == {name(0): 80, name(1): 80}
    assert droppable(heads, {name(1): 30}, "nobody", [], kept=20) == {name(1): 30}
    assert droppable(heads, heads, me, [], kept=20) == {name(1): 80}
    others = [{name(0): 70}, {name(0): 60}, {name(0): 5}]
    assert droppable(heads, heads, me, others, kept=20) == {name(0): 60, name(1): 80}
    assert droppable(heads, heads, me, others[:1], kept=20) == {name(1): 80}


def test_a_bad_entry_ends_its_chain_and_nothing_else() -> None:
    far = entry(0, CHAIN[1], 1, payload=encode_delta(delta(1, 20, 1 << 29)))
    after = chain(0, 2, seed=12, after=far)
    deltas = set_of([*CHAIN[:2], far, *after, *chain(1, 2)])
    assert alike(deltas, set_of([*CHAIN[:2], *chain(1, 2)]))
    assert deliver(deltas, [far])[0].verdict == "refused"


def test_only_genuine_entries_are_put_back_behind_a_start() -> None:
    start = {name(0): 4}, {name(0): entry_id(CHAIN[3])}, {name(0): 6}
    strangers = chain(0, 3, seed=5)
    bad = msgspec.structs.replace(CHAIN[1], signature=bytes(64))
    for given, kept in [
        (CHAIN[:4], 4),
        (CHAIN[2:4], 2),
        (CHAIN[:5], 0),
        ([*strangers, CHAIN[3]], 1),
        ([CHAIN[0], bad, *CHAIN[2:4]], 2),
        ([CHAIN[0], CHAIN[0], CHAIN[3]], 1),
        ([], 0),
    ]:
        log = EntrySet(RULES)
        log.start_at(*start)
        digest = log.digest()
        assert log.keep(given) == kept
        assert log.digest() == digest
        assert list(log) == CHAIN[4 - kept : 4]
        assert log.add(CHAIN[4]).verdict == "added"
        assert log.keep(CHAIN[:4]) == 0, "only while nothing is there"
