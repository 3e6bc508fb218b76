"""All a small swarm can do with one shard: nothing is lost, one holds it in the end; and broken rules are found out."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from p2pnode.shards.handoff import certificate as certificates
from p2pnode.shards.handoff import step as stepping
from p2pnode.shards.handoff.certificate import Certificate, certificate_id, countersign, is_offer
from p2pnode.shards.handoff.messages import Certified, Release
from p2pnode.shards.handoff.state import (
    BytesArrived,
    DeleteBytes,
    Give,
    HandoffEvent,
    HandoffStep,
    PutBytes,
    PutRecord,
    Received,
    ShardState,
)
from p2pnode.shards.handoff.step import step
from p2pnode.wire.ids import Signer
from tests.shards.handoff.modelcheck import Checker
from tests.shards.handoff.world import DEFAULT_SCOPES, Scope, Violation, replicated, some_bytes


@pytest.mark.parametrize("scope", DEFAULT_SCOPES.values(), ids=DEFAULT_SCOPES.keys())
def test_nothing_is_lost_and_one_holds_the_shard_in_the_end(scope: Scope) -> None:
    report = Checker(scope).explore()
    assert report.complete
    assert report.states > 5_000 and report.settled > 1_000 and report.kill_points > 100


# ---- three mutations that lose a shard ----


def signing_before_fsync(me: Signer, state: ShardState, event: HandoffEvent) -> HandoffStep:
    made = step(me, state, event)
    return made._replace(writes=tuple(sorted(made.writes, key=lambda write: isinstance(write, PutBytes))))


def deleting_at_offer_time(me: Signer, state: ShardState, event: HandoffEvent) -> HandoffStep:
    made = step(me, state, event)
    if not (isinstance(event, Give) and made.writes):
        return made
    record = msgspec.structs.replace(made.state.record, kept=False)
    gone = dataclasses.replace(made.state, record=record, have=False)
    return HandoffStep(gone, (PutRecord(record), DeleteBytes()), made.messages)


class Latest:
    """A rank without terms: what comes last counts."""

    def __init__(self, certificate: Certificate | None) -> None:
        self.id = certificate_id(certificate) if certificate else b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Latest) and self.id == other.id

    def __gt__(self, other: Latest) -> bool:
        return self.id not in (b"", other.id)

    def __lt__(self, other: Latest) -> bool:
        return False

    __le__ = __eq__


@pytest.mark.parametrize("broken", [signing_before_fsync, deleting_at_offer_time])
def test_a_wrong_order_of_writes_is_found_out(broken) -> None:
    with pytest.raises(Violation, match="bytes"):
        Checker(Scope(some_bytes("a")), broken).explore()


def test_a_missing_term_is_found_out(monkeypatch) -> None:
    monkeypatch.setattr(stepping, "rank", Latest)
    with pytest.raises(Violation, match="bytes"):
        Checker(Scope(some_bytes("a")), forget=False).explore()


# ---- and more of the rules, each broken once ----


def announcing_before_the_write(me: Signer, state: ShardState, event: HandoffEvent) -> HandoffStep:
    """The receipt leaves when the offer comes; bytes and certificate follow."""
    offered = getattr(event.message, "certificate", None) if isinstance(event, Received) else None
    if offered is not None and is_offer(offered) and not state.have:
        made = step(me, state, event)
        receipt = Certified(countersign(me, offered))
        return made._replace(messages=(*made.messages, (offered.giver, receipt)))
    return step(me, state, event)


def releasing_unasked(me: Signer, state: ShardState, event: HandoffEvent) -> HandoffStep:
    """The holder releases whoever asks, whether the keepers have the bytes or not."""
    everybody = frozenset({"a", "b", "c"})
    after = step(me, dataclasses.replace(state, confirmed=everybody), event)
    return after._replace(state=dataclasses.replace(after.state, confirmed=frozenset()))


def believing_an_old_release(me: Signer, state: ShardState, event: HandoffEvent) -> HandoffStep:
    """A release for any certificate is good enough."""
    if isinstance(event, Received) and isinstance(event.message, Release) and state.record.kept:
        record = msgspec.structs.replace(state.record, kept=False)
        return HandoffStep(dataclasses.replace(state, record=record), (PutRecord(record),))
    return step(me, state, event)


def forgetting_to_keep(me: Signer, state: ShardState, event: HandoffEvent) -> HandoffStep:
    """A keeper says it keeps the bytes, and does not write it down."""
    made = step(me, state, event)
    highest = made.state.record.highest
    if isinstance(event, BytesArrived) and highest and highest.to != me.peer_id:
        record = msgspec.structs.replace(made.state.record, kept=False)
        return HandoffStep(dataclasses.replace(made.state, record=record), (PutBytes(),), made.messages)
    return made


@pytest.mark.parametrize(
    ("broken", "scope"),
    [
        (announcing_before_the_write, Scope(some_bytes("a"))),
        (releasing_unasked, Scope(replicated(), copies=2, faults=1, terms=2)),
        (forgetting_to_keep, Scope(replicated(), copies=2, faults=1, terms=2)),
        (believing_an_old_release, Scope(some_bytes("a"))),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_other_broken_rules_are_found_out(broken, scope: Scope) -> None:
    with pytest.raises(Violation):
        Checker(scope, broken, forget=False).explore()


def test_the_checker_tries_every_write_of_a_handoff(monkeypatch) -> None:
    """A receiver dies between the bytes and the certificate: the checker has been there."""
    seen = []
    real = certificates.countersign

    def noted(me: Signer, offered: Certificate) -> Certificate:
        seen.append((me.peer_id, offered.term))
        return real(me, offered)

    monkeypatch.setattr(stepping, "countersign", noted)
    report = Checker(Scope(some_bytes("a"), terms=2)).explore()
    assert {("b", 1), ("c", 1)} <= set(seen)
    assert report.complete and report.kill_points > 0
