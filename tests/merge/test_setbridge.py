"""Bridges between delta sets: asked, answered and published through policies, without a network."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest
from blake3 import blake3

from p2pnode.deltaset.entry import BRIDGE, decode_entry, encode_entry
from p2pnode.deltaset.lineage import circle_lineage
from p2pnode.ids import Identity
from p2pnode.merge.deltaset import DeltaSetPolicy
from p2pnode.merge.policy import Facts, Origin
from p2pnode.merge.setbridge import MAX_LINEAGES, Asked, BridgeDraft, Bridges, Question
from p2pnode.merge.setmessages import Deltas, encode_deltas
from p2pnode.weights import Floats, to_units

SIZE = 20_000
RUN = b"g" * 32
HERE, THERE = circle_lineage(RUN, "here"), circle_lineage(RUN, "there")
GENESIS: Floats = np.random.default_rng(1).normal(0, 0.1, SIZE).astype(np.float32)


def member(number: int, lineage: bytes, **settings: float) -> DeltaSetPolicy:
    identity = Identity(blake3(f"node {number}".encode()).digest())
    return DeltaSetPolicy(Origin(to_units(GENESIS), identity, lineage.hex(), "main", "cd" * 32, settings, 1))


def learn(policy: DeltaSetPolicy, seed: int, rounds: int = 1) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        begun = policy.start()
        after = begun + rng.normal(0, 0.01, SIZE).astype(np.float32)
        policy.publish(policy.record(begun, after, Facts(5, 1.0, 160, 1)))


def asked(policy: DeltaSetPolicy, other: bytes, seed: int = 7, group: int = 1) -> Asked:
    question = policy.ask_beyond(other, group, seed)
    assert question is not None
    return question


def bridged(one: DeltaSetPolicy, other: DeltaSetPolicy, seed: int = 7) -> bytes:
    question = asked(one, other.set.rules.lineage, seed)
    draft = one.bridge(question, other.answer_beyond(question.body))
    assert draft is not None
    return one.publish(draft)


def apart(one: DeltaSetPolicy, other: DeltaSetPolicy, places: np.ndarray) -> float:
    return float(np.linalg.norm((one.weights() - other.weights())[places]))


def test_a_bridge_halves_the_difference_on_what_was_asked_and_leaves_the_residual_alone() -> None:
    one, other = member(1, HERE), member(2, THERE)
    learn(one, 1, 3), learn(other, 2, 3)
    question = asked(one, THERE)
    before, residual, rounds = apart(one, other, question.places), one.author.residual.copy(), one.author.rounds
    entry = decode_entry(bridged(one, other))
    assert 0.4 < apart(one, other, question.places) / before < 0.6
    assert (entry.kind, entry.other, entry.gamma, entry.group, entry.steps) == (BRIDGE, THERE, 1.0, 1, 0)
    assert np.array_equal(one.author.residual, residual)
    assert one.author.rounds == rounds


def test_a_bridge_is_an_entry_like_any_other_for_the_circle() -> None:
    one, mate, other = member(1, HERE), member(3, HERE), member(2, THERE)
    learn(one, 1), learn(other, 2)
    bridged(one, other)
    mate.take("", one.answer("", mate.ask("")))
    assert mate.set.hash() == one.set.hash()
    assert mate.ask_beyond(THERE, 8, 1) is None  # one of the circle has bridged lately
    assert mate.ask_beyond(circle_lineage(RUN, "elsewhere"), 8, 1) is not None


def test_bridges_are_made_again_after_a_circles_rounds_and_ask_for_what_changed_since() -> None:
    one, other = member(1, HERE), member(2, THERE)
    learn(one, 1), learn(other, 2)
    first = asked(one, THERE, seed=7)
    bridged(one, other, seed=7)
    then = one.weights()
    assert one.ask_beyond(THERE, 1, 7) is None
    learn(one, 3)
    change = np.abs(one.weights() - then)
    large = np.sort(change)[-200]  # many are as large as each other: there are few levels
    assert np.delete(change, asked(one, THERE, seed=7).places).max() <= large
    assert (change[asked(one, THERE, seed=7).places] >= large).sum() >= 200
    assert (change[first.places] >= large).sum() < 100


def test_two_at_once_count_once() -> None:
    """A question under way when a mate's bridge comes in is not published any more."""
    one, mate, other = member(1, HERE), member(3, HERE), member(2, THERE)
    learn(other, 2)
    question = asked(one, THERE, group=2)
    bridged(mate, other)
    draft = one.bridge(question, other.answer_beyond(question.body))
    one.take("", mate.answer("", one.ask("")))
    assert draft is not None
    assert one.publish(draft) == b""


def test_entries_of_another_circle_are_foreign() -> None:
    one, other = member(1, HERE), member(2, THERE)
    learn(other, 2)
    before = one.set.hash()
    foreign = encode_deltas(Deltas(b"x" * 16, entries=tuple(map(encode_entry, other.set.log))))
    with pytest.raises(ValueError, match="another lineage"):
        one.take("", foreign)
    assert one.set.hash() == before


def test_only_the_lineage_that_is_meant_answers() -> None:
    one, third = member(1, HERE), member(3, circle_lineage(RUN, "elsewhere"))
    question = asked(one, THERE)
    assert third.answer_beyond(question.body) == b""
    assert one.bridge(question, b"") is None


def test_equal_weights_have_nothing_to_say() -> None:
    one, other = member(1, HERE), member(2, THERE)
    question = asked(one, THERE)
    draft = one.bridge(question, other.answer_beyond(question.body))
    assert draft is None or np.abs(draft.delta.values).max() < 128  # rounding alone


def test_a_bridge_stays_within_the_norm_an_entry_may_have() -> None:
    one, other = member(1, HERE, norm_ratio=1e-4), member(2, THERE)
    learn(other, 2, 5)
    entry = decode_entry(bridged(one, other))
    assert list(one.set.log) == [entry]


def test_nonsense_is_refused_and_changes_nothing() -> None:
    one, other = member(1, HERE), member(2, THERE)
    learn(one, 1), learn(other, 2)
    question = asked(one, THERE)
    told = other.answer_beyond(question.body)
    rng, refused = random.Random(5), 0
    before = one.set.hash(), other.set.hash()
    for number in range(600):
        spoiled = bytearray(question.body if number % 2 else told)
        if rng.random() < 0.3:
            spoiled = spoiled[: rng.randrange(1, len(spoiled))]
        spoiled[rng.randrange(len(spoiled))] = rng.randrange(256)
        try:
            other.answer_beyond(bytes(spoiled)) if number % 2 else one.bridge(question, bytes(spoiled))
        except ValueError:
            refused += 1
    assert refused > 100
    assert (one.set.hash(), other.set.hash()) == before


@pytest.mark.parametrize(
    "question",
    [Question(THERE, 1 << 32, b""), Question(THERE, -1, b""), Question(b"short", 1, b""), Question(THERE, 1, b"")],
    ids=["a seed too large", "a negative seed", "no lineage", "no places"],
)
def test_questions_out_of_bounds(question: Question) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        member(2, THERE).answer_beyond(msgspec.msgpack.encode(question))


def test_more_places_than_a_bridge_has_are_refused() -> None:
    one, other = member(1, HERE), member(2, THERE)
    learn(one, 1, 3)
    many = asked(one, THERE)
    whole = msgspec.msgpack.decode(many.body, type=Question)
    small = DeltaSetPolicy(
        Origin(to_units(GENESIS[:5000]), Identity(b"\1" * 32), THERE.hex(), "main", "cd" * 32, {}, 1)
    )
    assert len(other.answer_beyond(many.body)) > 0
    with pytest.raises(ValueError):  # noqa: PT011
        small.answer_beyond(msgspec.msgpack.encode(whole))


def test_a_restart_remembers_its_bridges() -> None:
    one, other = member(1, HERE), member(2, THERE)
    learn(one, 1), learn(other, 2)
    state = one.state()
    journal = [bridged(one, other)]
    again = member(1, HERE)
    again.restore(state, journal)
    assert again.set.hash() == one.set.hash()
    assert again.author.rounds == one.author.rounds
    assert again.ask_beyond(THERE, 1, 1) is None


def test_lineages_remembered_are_bounded() -> None:
    one, other = member(1, HERE), member(2, THERE)
    learn(other, 2)
    question = asked(one, THERE)
    draft = one.bridge(question, other.answer_beyond(question.body))
    assert isinstance(draft, BridgeDraft)
    for number in range(MAX_LINEAGES + 5):
        one.publish(BridgeDraft(number.to_bytes(32), draft.delta, 1))
    assert isinstance(one._bridges, Bridges)
    assert len(one._bridges._heads) == MAX_LINEAGES


@pytest.mark.parametrize("wrong", [-0.1, 1.5])
def test_the_setting_is_a_probability(wrong: float) -> None:
    with pytest.raises(ValueError, match="bridge"):
        member(1, HERE, bridge=wrong)
