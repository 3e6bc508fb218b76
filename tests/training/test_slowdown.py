"""A node slows down when its run gets nowhere any more, never before, and goes back to full speed when that changes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.config.until import THRESHOLD
from p2pnode.tasks.task import Evaluation
from p2pnode.training.slowdown import (
    LEAST_DUTY,
    LONGEST_REST,
    NOTABLE,
    PATIENCE_PASSES,
    PATIENCE_ROUNDS,
    Slowdown,
    Surroundings,
    change_of,
    rest_after,
)
from p2pnode.wire.ids import PeerId
from p2pnode.wire.status import NO_LIMITS, LimitOptions

CALM = THRESHOLD / 10
HERE = Surroundings(frozenset({PeerId("a"), PeerId("b")}), frozenset({"s"}), 100, NO_LIMITS)


def results(loss: float = 0.1, accuracy: float | None = 0.97, samples: int = 360) -> Evaluation:
    return Evaluation(loss, accuracy, samples)


def follow(one: Slowdown, rounds: int, norm: float = CALM, loss: float = 1e-3, passes: float = 1.0) -> list[str]:
    """Rounds alike, each with the same test results; returns why the node went back to full speed."""
    woken = []
    for _ in range(rounds):
        woken += [one.note_round(loss, norm, norm, passes), one.note_test(results())]
    return [reason for reason in woken if reason]


def slowed(first_loss: float = 2.3) -> Slowdown:
    one = Slowdown()
    one.note_round(first_loss, 0.1, 0.1, 1.0)
    follow(one, PATIENCE_ROUNDS + 2)
    assert one.reason.startswith("converged: updates change the weights by 0.02% only")
    return one


class TestSlowing:
    def test_it_takes_many_rounds_without_better_results(self) -> None:
        one = Slowdown()
        follow(one, PATIENCE_ROUNDS - 1)
        assert one.reason == "" and one.rest(2.0) == 0
        follow(one, 3)
        assert one.reason and one.rest(2.0) > 0

    def test_weights_that_still_change_are_not_converged(self) -> None:
        one = Slowdown()
        follow(one, 5 * PATIENCE_ROUNDS, norm=THRESHOLD * 1.1)
        assert one.reason == ""

    @pytest.mark.parametrize(("step", "samples"), [((0.985, 0.0), 360), ((1.0, 0.009), 360), ((1.0, 0.003), 10_000)])
    def test_results_that_still_become_better_are_not_converged(self, step: tuple[float, float], samples: int) -> None:
        """A language model whose weights move little a round, or a loss that rises while accuracy grows."""
        one, loss, accuracy = Slowdown(), 4.0, 0.1
        for number in range(250):
            one.note_round(loss, CALM, CALM, 1.0)
            if number % 20 == 0:
                loss, accuracy = loss * step[0], accuracy + step[1]
            one.note_test(results(loss, accuracy, samples))
        assert one.reason == ""

    def test_a_model_that_has_not_seen_its_data_goes_on(self) -> None:
        one = Slowdown()
        follow(one, 10 * PATIENCE_ROUNDS, passes=PATIENCE_PASSES / PATIENCE_ROUNDS / 11)
        assert one.reason == ""

    def test_few_tests_show_nothing(self) -> None:
        """Rounds of a small model are short, and tests come by the clock."""
        one = Slowdown()
        for number in range(4 * PATIENCE_ROUNDS):
            one.note_round(1e-3, CALM, CALM, 1.0)
            if number % PATIENCE_ROUNDS == 0:
                one.note_test(results())
        assert one.reason == ""

    def test_more_test_samples_are_another_measure(self) -> None:
        one = Slowdown()
        for number in range(2 * PATIENCE_ROUNDS):
            one.note_round(1e-3, CALM, CALM, 1.0)
            one.note_test(results(samples=64 + number))
        assert one.reason == ""


class TestResting:
    @given(st.floats(0.01, 100), st.integers(0, 1000))
    def test_rests_grow_to_a_bounded_share_of_the_time(self, seconds: float, rests: int) -> None:
        rest = rest_after(seconds, rests)
        assert seconds <= rest <= LONGEST_REST or rest == LONGEST_REST
        assert rest_after(seconds, rests + 1) >= rest
        assert seconds / (seconds + rest) >= LEAST_DUTY - 1e-9
        assert rest == LONGEST_REST or seconds / (seconds + rest_after(seconds, 20)) <= LEAST_DUTY + 1e-9 or rests < 20

    def test_the_node_rests_a_little_longer_each_time(self) -> None:
        one = slowed()
        rests = [one.rest(2.0) for _ in range(12)]
        assert rests == sorted(rests)
        assert rests[0] == 2.0 and rests[-1] == pytest.approx(38.0)


class TestWaking:
    @pytest.mark.parametrize(
        ("loss", "norm", "reason"),
        [
            (1e-3, 2 * NOTABLE, "the shared weights changed by 0.8%"),
            (0.5, CALM, "the training loss rose to 0.5"),
            (5e-3, CALM, ""),  # still next to nothing
            (2e-3, CALM, ""),
        ],
    )
    def test_by_losses_and_work_of_others(self, loss: float, norm: float, reason: str) -> None:
        one = slowed()
        one.rest(2.0)
        assert one.note_round(loss, norm, CALM, 1.0) == reason
        assert (one.reason == "") == bool(reason) and (one.rest(2.0) == 0) == bool(reason)

    def test_by_better_results(self) -> None:
        one = slowed()
        assert one.note_test(results(0.0995)) == ""
        assert one.note_test(results(0.05)) == "the test results became better"
        follow(one, PATIENCE_ROUNDS - 1)
        assert one.reason == "", "it takes as long as before to slow down again"
        assert one.rests == 0

    def test_by_three_more_right_answers_and_not_by_one_or_two(self) -> None:
        """Of 360 test samples one is 0.28 %: it comes and goes while the loss rises."""
        one = slowed()
        assert [one.note_test(results(0.2, 0.97 + more / 360)) for more in (1, 0, 2, 1)] == [""] * 4
        assert one.note_test(results(0.2, 0.97 + 3 / 360)) == "the test results became better"

    @pytest.mark.parametrize(
        ("now", "reason"),
        [
            (HERE, ""),
            (replace(HERE, members=frozenset({PeerId("a")})), ""),  # who left taught all it knew
            (replace(HERE, members=HERE.members | {PeerId("c")}), "a member came"),
            (replace(HERE, shards=frozenset({"s", "t"})), "its samples changed"),
            (replace(HERE, samples=150), "its samples changed"),
            (replace(HERE, limits=LimitOptions(max_cpu=0.5)), "its limits changed"),
        ],
    )
    def test_by_members_data_and_limits(self, now: Surroundings, reason: str) -> None:
        assert change_of(HERE, now) == reason
        one = slowed()
        assert one.wake(change_of(HERE, now)) == reason
        assert bool(one.reason) != bool(reason)

    def test_a_node_at_full_speed_has_nothing_to_wake_from(self) -> None:
        assert Slowdown().wake("a member came") == ""
