"""Which queue is next and who should own it: laws of the score, of turns, of allocation and of announcements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.jobs.queues.allocation import STAY, NodeLoad, QueueLoad, allocate
from p2pnode.jobs.queues.announcing import Announced, announced, read_announced
from p2pnode.jobs.queues.priority import (
    CONVERGED,
    EVERY_EIGHTH,
    Plateau,
    PriorityWeights,
    QueueFacts,
    Turns,
    pick,
    score,
)

FACTS = QueueFacts(parameters=1000, length=8, capacity=64, passes=2.0, idle=0.5)
NAMES = ("small", "wide", "clothes")


def test_each_part_of_a_score_follows_from_its_own_fact() -> None:
    found = score(FACTS, 1000, PriorityWeights(2.0, 1.0, 4.0, 0.5))
    assert (found.convergence, found.complexity, found.length, found.idle) == (1.0, 1.0, 0.5, 0.25)
    assert found.total == 2.75
    words = found.reason
    assert words.startswith("2.0 passes since it got better, 1,000 weights, 8 of 64 waiting, owner idle 50%")


@given(
    st.builds(QueueFacts, st.integers(1, 10**9), st.integers(0, 9999), st.integers(1, 4096), st.floats(0, 1e9),
              st.floats(0, 1)),
    st.builds(PriorityWeights, *[st.floats(0, 10)] * 4),
)  # fmt: skip
def test_a_score_is_never_below_zero_or_above_its_weights(facts: QueueFacts, weights: PriorityWeights) -> None:
    found = score(facts, max(facts.parameters, 10), weights)
    parts = (found.convergence, found.complexity, found.length, found.idle)
    limits = (weights.convergence, weights.complexity, weights.length, weights.idle)
    assert all(0.0 <= part <= limit + 1e-9 for part, limit in zip(parts, limits, strict=True))


@given(st.lists(st.floats(0, 30), min_size=3, max_size=3))
def test_nothing_starves_among_owned_queues(scores: list[float]) -> None:
    """Whatever the scores, each of three queues is picked within three times eight picks."""
    waited, picked = list(NAMES), []
    for number in range(3 * EVERY_EIGHTH):
        chosen = pick(dict(zip(NAMES, scores, strict=True)), waited, number)
        waited.remove(chosen)
        waited.append(chosen)
        picked.append(chosen)
    assert set(picked) == set(NAMES)


@given(st.dictionaries(st.sampled_from(NAMES), st.floats(0.1, 5.0), min_size=2))
def test_models_are_trained_in_proportion_to_their_needs(needs: dict[str, float]) -> None:
    turns, count = Turns(dict.fromkeys(NAMES, 0.0)), 4000
    had = dict.fromkeys(needs, 0)
    for _ in range(count):
        had[turns.next(needs)] += 1
    total = sum(needs.values())
    assert all(abs(had[name] / count - need / total) < 0.02 for name, need in needs.items())


def test_a_model_that_comes_later_begins_where_the_others_are() -> None:
    turns = Turns({"small": 0.0})
    for _ in range(1000):
        turns.next({"small": 1.0})
    following = [turns.next({"small": 1.0, "new": 1.0}) for _ in range(10)]
    assert following.count("new") <= 6


def test_a_plateau_begins_when_the_accuracy_stops_changing() -> None:
    plateau = Plateau()
    for passes, accuracy in enumerate((0.3, 0.6, 0.8, 0.801, 0.799)):
        plateau.note_accuracy(accuracy, 10_000, float(passes))
    assert plateau.passes(10.0) == 8.0, "since the third: later changes are noise"
    assert not plateau.converged(1000.0), "too few tests"
    for _ in range(10):
        plateau.note_accuracy(0.8, 10_000, 5.0)
    assert plateau.converged(2.0 + CONVERGED) and not plateau.converged(1.0 + CONVERGED)
    by_loss = Plateau()
    for passes, loss in enumerate((3.0, 2.0, 1.99)):
        by_loss.note_loss(loss, float(passes))
    assert by_loss.passes(10.0) == 9.0


def load(work: float, owner: str = "", preferred: str = "", able: tuple[str, ...] = ("a", "b", "c")) -> QueueLoad:
    return QueueLoad(work, owner, able, preferred)


NODES = {"a": NodeLoad(10.0, 0.5), "b": NodeLoad(10.0, 0.5), "c": NodeLoad(1.0, 0.5)}


def test_queues_spread_over_nodes_that_can_spare_time() -> None:
    given_to = allocate({"small": load(1.0), "wide": load(1.0)}, NODES)
    assert set(given_to.values()) == {"a", "b"}


def test_a_queue_stays_where_it_is_unless_another_node_is_clearly_better() -> None:
    for owner in ("a", "b"):
        assert allocate({"small": load(1.0, owner)}, NODES) == {"small": owner}
    better = {"a": NodeLoad(10.0, 0.5), "b": NodeLoad(10.0 * STAY * 1.1, 0.5)}
    assert allocate({"small": load(1.0, "a", able=("a", "b"))}, better) == {"small": "b"}


def test_a_queue_goes_only_to_who_has_its_model_and_to_who_wants_it() -> None:
    assert allocate({"small": load(1.0, able=("c",))}, NODES) == {"small": "c"}
    assert allocate({"small": load(1.0, able=())}, NODES) == {}
    assert allocate({"small": load(1.0, preferred="c")}, NODES) == {"small": "c"}
    assert allocate({"small": load(1.0, preferred="c", able=("a",))}, NODES) == {"small": "a"}


@given(st.lists(st.sampled_from(NAMES), unique=True), st.lists(st.sampled_from(NAMES), unique=True), st.floats(0, 1))
def test_members_read_what_is_announced(models: list[str], owned: list[str], idle: float) -> None:
    state = announced(NAMES, models, owned, (), NodeLoad(12.5, idle))
    assert len(state) <= 32
    found = read_announced(state, NAMES)
    assert set(found.models or ()) == set(models) and set(found.owned) == set(owned)
    assert found.load.speed == 12.5 and abs(found.load.idle - idle) < 0.01


@pytest.mark.parametrize("state", [b"", b"x", b"\xff" * 9, b"\x00\xff\x7e" + b"\xff" * 6, b"\xff" * 32])
def test_announcements_that_make_no_sense_say_nothing_harmful(state: bytes) -> None:
    found = read_announced(state, NAMES)
    assert 0.0 <= found.load.speed < 1e6 and 0.0 <= found.load.idle <= 1.0
    assert set(found.owned) <= set(NAMES)
    assert Announced().has("small"), "who has not said may have the model"
