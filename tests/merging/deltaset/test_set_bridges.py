"""Bridges between delta sets: asked, answered and published through policies, without a network."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
from blake3 import blake3

from p2pnode.circles.founding import circle_lineage
from p2pnode.compression.codec import decode_delta, encode_delta
from p2pnode.compression.delta import SparseDelta
from p2pnode.compression.weights import Floats, to_units
from p2pnode.merging.deltaset.bridges import Question
from p2pnode.merging.deltaset.chains import KEPT
from p2pnode.merging.deltaset.entry import BRIDGE, decode_entry, encode_entry
from p2pnode.merging.deltaset.exchange import EntryBatch, encode_deltas
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.policy import PolicySetup, RoundFacts
from p2pnode.wire.ids import Identity, PeerId

SIZE = 20_000
NOBODY = PeerId("")
RUN = b"g" * 32
HERE, THERE = circle_lineage(RUN, "here"), circle_lineage(RUN, "there")
GENESIS: Floats = np.random.default_rng(1).normal(0, 0.1, SIZE).astype(np.float32)


def member(number: int, lineage: bytes, **settings: float) -> DeltaSetPolicy:
    identity = Identity(blake3(f"node {number}".encode()).digest())
    return DeltaSetPolicy(PolicySetup(to_units(GENESIS), identity, lineage.hex(), "main", "cd" * 32, settings, 1))


def learn(policy: DeltaSetPolicy, seed: int, rounds: int = 1) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        begun = policy.start()
        after = begun + rng.normal(0, 0.01, SIZE).astype(np.float32)
        policy.publish(policy.record(begun, after, RoundFacts(5, 1.0, 160, 1)))


def bridge_answer(one: DeltaSetPolicy, other: DeltaSetPolicy, pause: int = 1) -> bytes:
    """What `other` answers when `one` asks."""
    question = one.bridges.ask(other.set.rules.lineage, pause)
    assert question
    return other.bridges.answer(question)


def bridged(one: DeltaSetPolicy, other: DeltaSetPolicy, pause: int = 1) -> bytes:
    """The entry that comes of it, as it goes to disk."""
    draft = one.bridges.draft(other.set.rules.lineage, bridge_answer(one, other, pause), pause)
    assert draft is not None
    return one.publish(draft)


def places(answer: bytes) -> np.ndarray:
    return decode_delta(answer, SIZE, SIZE).indices


def apart(one: DeltaSetPolicy, other: DeltaSetPolicy, where: np.ndarray) -> float:
    return float(np.linalg.norm((one.weights() - other.weights())[where]))


def test_a_bridge_halves_the_difference_where_the_others_changed_and_leaves_the_residual_alone() -> None:
    one, other = member(1, HERE), member(2, THERE)
    learn(one, 1, 3)
    learn(other, 2, 3)
    where = places(bridge_answer(one, other))
    before, residual, rounds = apart(one, other, where), one.author.residual.copy(), one.author.rounds
    entry = decode_entry(bridged(one, other))
    assert 0.4 < apart(one, other, where) / before < 0.6
    assert (entry.kind, entry.other, entry.gamma, entry.group, entry.steps) == (BRIDGE, THERE, 1.0, 1, 0)
    assert np.array_equal(one.author.residual, residual)
    assert one.author.rounds == rounds


def test_a_bridge_is_an_entry_like_any_other_for_the_circle() -> None:
    one, mate, other = member(1, HERE), member(3, HERE), member(2, THERE)
    learn(one, 1)
    learn(other, 2)
    bridged(one, other)
    mate.take(NOBODY, one.answer(NOBODY, mate.ask(NOBODY)))
    assert mate.set.hash() == one.set.hash()
    assert not mate.bridges.ask(THERE, 8)  # one of the circle has bridged lately
    assert mate.bridges.ask(circle_lineage(RUN, "elsewhere"), 8)


def test_bridges_are_made_again_after_a_while_and_tell_what_changed_since() -> None:
    one, other = member(1, HERE), member(2, THERE)
    learn(one, 1)
    learn(other, 2)
    first = places(bridge_answer(one, other))
    bridged(one, other)
    then = other.weights()
    assert not one.bridges.ask(THERE, 1)
    learn(one, 3)
    learn(other, 4)
    change = np.abs(other.weights() - then)
    large = np.sort(change)[-len(first)]  # many are as large as each other: there are few levels
    again = places(bridge_answer(one, other))
    assert (change[again] >= large).all()
    assert (change[first] >= large).mean() < 0.5


def test_what_came_over_a_bridge_is_not_passed_on_as_news() -> None:
    one, other = member(1, HERE), member(2, THERE)
    learn(other, 2)
    bridged(one, other)
    assert other.bridges.draft(HERE, bridge_answer(other, one), 1) is None


def test_two_at_once_count_once() -> None:
    """An answer that comes when a mate's bridge is already there is not published any more."""
    one, mate, other = member(1, HERE), member(3, HERE), member(2, THERE)
    learn(other, 2)
    draft = one.bridges.draft(THERE, bridge_answer(one, other, 2), 2)
    bridged(mate, other, 2)
    one.take(NOBODY, mate.answer(NOBODY, one.ask(NOBODY)))
    assert draft is not None
    assert one.publish(draft) == b""


def test_entries_of_another_circle_are_foreign() -> None:
    one, other = member(1, HERE), member(2, THERE)
    learn(other, 2)
    before = one.set.hash()
    foreign = encode_deltas(EntryBatch(b"x" * 16, entries=tuple(map(encode_entry, other.set.log))))
    with pytest.raises(ValueError, match="another lineage"):
        one.take(NOBODY, foreign)
    assert one.set.hash() == before


def test_only_the_lineage_that_is_meant_answers() -> None:
    one, third = member(1, HERE), member(3, circle_lineage(RUN, "elsewhere"))
    learn(third, 1)
    assert third.bridges.answer(one.bridges.ask(THERE, 1)) == b""


def test_where_nothing_changed_there_is_nothing_to_say() -> None:
    one, other = member(1, HERE), member(2, THERE)
    assert one.bridges.draft(THERE, bridge_answer(one, other), 1) is None


def test_a_bridge_stays_within_the_norm_an_entry_may_have() -> None:
    one, other = member(1, HERE, norm_ratio=1e-4), member(2, THERE)
    learn(other, 2, 5)
    entry = decode_entry(bridged(one, other))
    assert list(one.set.log) == [entry]


def test_nonsense_is_refused_and_changes_nothing() -> None:
    one, other = member(1, HERE), member(2, THERE)
    learn(one, 1)
    learn(other, 2)
    question, answer = one.bridges.ask(THERE, 1), bridge_answer(one, other)
    rng, refused = random.Random(5), 0
    before = one.set.hash(), other.set.hash()
    for number in range(600):
        spoiled = bytearray(question if number % 2 else answer)
        if rng.random() < 0.3:
            spoiled = spoiled[: rng.randrange(1, len(spoiled))]
        spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
        try:
            other.bridges.answer(bytes(spoiled)) if number % 2 else one.bridges.draft(THERE, bytes(spoiled), 1)
        except ValueError:
            refused += 1
    assert refused > 100
    assert (one.set.hash(), other.set.hash()) == before


@pytest.mark.parametrize(
    "question", [Question(THERE, 0), Question(THERE, KEPT + 1), Question(b"short", 1), [THERE], "?"], ids=repr
)
def test_questions_out_of_bounds(question: object) -> None:
    with pytest.raises(ValueError, match="malformed bridge"):
        member(2, THERE).bridges.answer(msgspec.msgpack.encode(question))


def test_more_weights_than_a_bridge_has_are_refused() -> None:
    one = member(1, HERE)
    many = np.arange(SIZE // 10, dtype=np.uint32)
    with pytest.raises(ValueError, match="entries"):
        one.bridges.draft(THERE, encode_delta(SparseDelta(SIZE, many, np.ones(len(many), np.int32))), 1)
    with pytest.raises(ValueError):  # noqa: PT011  # of another model
        one.bridges.draft(THERE, encode_delta(SparseDelta(SIZE + 1, many[:5], np.ones(5, np.int32))), 1)


def test_a_restart_remembers_its_bridges() -> None:
    one, other = member(1, HERE), member(2, THERE)
    learn(one, 1)
    learn(other, 2)
    state = one.state()
    journal = [bridged(one, other)]
    again = member(1, HERE)
    again.restore(state, journal)
    assert again.set.hash() == one.set.hash()
    assert again.author.rounds == one.author.rounds
    assert not again.bridges.ask(THERE, 1)


@pytest.mark.parametrize("wrong", [-0.1, 21.0])
def test_the_setting_is_a_bounded_factor(wrong: float) -> None:
    with pytest.raises(ValueError, match="bridge"):
        member(1, HERE, bridge=wrong)
