"""Weights between a training loop and its node: no step is lost or counted twice, whatever the two threads do."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.compression.weights import Floats
from p2pnode.jobs.loop.handover import Handover, WeightsChange
from p2pnode.wire.errors import UsageError


class FakeWeights:
    """Weights that are one vector. `healed` counts how often an optimizer would have been cleaned."""

    def __init__(self, size: int = 3) -> None:
        self.values = np.zeros(size, np.float32)
        self.healed = 0
        self.replaced_parameter = False

    def read(self) -> Floats:
        return self.values.copy()

    def add(self, change: Floats) -> None:
        self.values += change

    def replace(self, values: Floats, heal: bool) -> None:
        self.values[:] = values
        self.healed += heal

    def check(self) -> None:
        if self.replaced_parameter:
            raise UsageError("parameter w was replaced")


def vector(value: float, size: int = 3) -> Floats:
    return np.full(size, value, np.float32)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(-8, 8)),
        st.tuples(st.just("due"), st.integers(1, 4)),
        st.tuples(st.just("take"), st.just(0)),
        st.tuples(st.just("add"), st.integers(-8, 8)),
        st.tuples(st.just("replace"), st.integers(-8, 8)),
        st.tuples(st.just("settle"), st.just(0)),
    ),
    max_size=60,
)


@given(ACTIONS)
def test_weights_are_all_steps_and_changes_and_each_step_is_counted_once(actions: list[tuple[str, int]]) -> None:
    """A model to compare the hand-over with: the sum of everything since the last replacement."""
    weights = FakeWeights()
    handover = Handover(weights)
    expected, steps, counted, dropped = 0.0, 0, 0, 0
    pending: WeightsChange | None = None

    def applied() -> None:
        nonlocal expected, pending, dropped
        if pending is not None:
            value = float(pending.vector[0])
            if pending.replaces:
                dropped += handover.uncounted
                expected = value
            else:
                expected += value
            pending = None

    for what, value in actions:
        if what == "step":
            weights.values += np.float32(value)
            expected += value
            steps += 1
            before = pending
            if before is not None and before.replaces:
                dropped += steps - handover.total + handover.uncounted
                expected, pending = float(before.vector[0]), None
            elif before is not None:
                expected, pending = expected + float(before.vector[0]), None
            assert handover.stepped(steps) == (before is not None)
        elif what == "due":
            handover.end_round_after(value)
        elif what == "take":
            copy = handover.take()
            if copy is not None:
                counted += copy.steps
        elif what == "settle":
            applied()
            handover.settle()
        elif not handover.pending:
            pending = WeightsChange(vector(value), replaces=what == "replace")
            handover.hand_back(pending)
    assert weights.values[0] == expected
    left = handover.take()
    counted += 0 if left is None else left.steps
    assert counted + handover.uncounted + dropped == steps


def test_a_round_ends_at_the_step_that_is_due_and_training_goes_on_from_what_is_handed_back() -> None:
    weights, woken = FakeWeights(), []
    handover = Handover(weights)
    handover.listen(lambda: woken.append(True))
    handover.end_round_after(2)
    for total in (1, 2):
        weights.values += 1
        handover.stepped(total)
    copy = handover.take()
    assert woken == [True] and copy is not None
    assert (copy.steps, copy.total, list(copy.weights)) == (2, 2, [2, 2, 2])
    weights.values += 1  # a step made while the node merges
    handover.stepped(3)
    handover.hand_back(WeightsChange(vector(10.0) - copy.weights))
    weights.values += 1
    handover.stepped(4)
    assert list(weights.values) == [12, 12, 12]  # the merged weights and both steps
    assert handover.uncounted == 2


def test_weights_that_replace_drop_the_steps_made_meanwhile() -> None:
    weights = FakeWeights()
    handover = Handover(weights)
    weights.values += 5
    handover.hand_back(WeightsChange(vector(1.0), replaces=True, heals=True))
    handover.stepped(7)
    assert list(weights.values) == [1, 1, 1]
    assert (handover.uncounted, weights.healed) == (0, 1)


def test_the_end_of_a_loop_copies_out_the_rest() -> None:
    weights = FakeWeights()
    handover = Handover(weights)
    weights.values += 1
    handover.stepped(1)
    handover.hand_back(WeightsChange(vector(2.0)))
    handover.finish()
    copy = handover.take()
    assert copy is not None and copy.steps == 1 and list(copy.weights) == [3, 3, 3]
    handover.finish()
    assert handover.take() is None


def test_the_loop_learns_that_its_model_changed() -> None:
    weights = FakeWeights()
    handover = Handover(weights)
    handover.end_round_after(1)
    weights.replaced_parameter = True
    with pytest.raises(UsageError, match="was replaced"):
        handover.stepped(1)


def test_two_threads_lose_no_step() -> None:
    """The loop steps by one, the node adds zero-sum changes; at the end the weights are the number of steps."""
    weights = FakeWeights(1000)
    handover = Handover(weights)
    ready, done = threading.Event(), threading.Event()
    handover.listen(ready.set)
    handover.end_round_after(3)
    counted = rounds = 0

    def node() -> None:
        nonlocal counted, rounds
        while not done.is_set() or ready.is_set():
            if not ready.wait(0.01):
                continue
            ready.clear()
            copy = handover.take()
            assert copy is not None and (copy.weights == copy.weights[0]).all(), "a copy is of one moment"
            counted += copy.steps
            rounds += 1
            merged = copy.weights + np.float32(1.0 if rounds % 2 else -1.0)
            handover.hand_back(WeightsChange(merged - copy.weights))
            handover.end_round_after(3)

    thread = threading.Thread(target=node)
    thread.start()
    total = 0
    while rounds < 50:
        weights.values += 1
        total += 1
        handover.stepped(total)
    handover.settle()
    done.set()
    thread.join()
    handover.settle()
    left = handover.take()
    counted += 0 if left is None else left.steps
    assert counted + handover.uncounted == total
    assert weights.values[0] == total + rounds % 2
