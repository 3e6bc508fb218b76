"""What is said to `simulate` is done or refused: nothing is overridden or passed over in silence."""

from __future__ import annotations

from typing import Any

import pytest

from p2pnode import simulate as module
from p2pnode.config.options import TaskChoice
from p2pnode.simulate import Scenario, SimTraining, simulate
from p2pnode.wire.errors import UsageError

SAID: dict[str, Any] = {
    "split": "iid",
    "rounds": 3,
    "circle": 2,
    "aim": "own",
    "policy": "average",
    "settings": {},
    "speeds": "1-2",
    "share_data": True,
}


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Scenario]:
    """The plans that would be run."""
    plans: list[Scenario] = []
    monkeypatch.setattr(module, "run_plan", lambda plan, *rest: plans.append(plan))
    return plans


def lesson_of(plans: list[Scenario]) -> SimTraining:
    (plan,) = plans
    assert plan.lesson is not None
    return plan.lesson


def test_a_task_that_was_chosen_stays_as_it_was_chosen(planned: list[Scenario]) -> None:
    chosen = TaskChoice("digits", device="cpu", policy="average", aim="own", given=frozenset({"policy"}))
    simulate(4, task=chosen, rounds=3)
    choice = lesson_of(planned).choice
    assert (choice.policy, choice.aim, choice.given) == ("average", "own", {"policy", "spec"})
    assert (lesson_of(planned).rounds, lesson_of(planned).split) == (3, "iid")


def test_what_a_chosen_task_leaves_open_can_be_said_beside_it(planned: list[Scenario]) -> None:
    chosen = TaskChoice("digits", device="cpu", settings={"density": 0.1}, round_seconds=1.0)
    simulate(4, task=chosen, aim="own", settings={"density": 0.1})
    choice = lesson_of(planned).choice
    assert (choice.aim, choice.settings, choice.round_seconds) == ("own", {"density": 0.1}, 1.0)


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (TaskChoice(policy="average"), {"policy": "gossip"}),
        (TaskChoice(given=frozenset({"aim"})), {"aim": "own"}),
        (TaskChoice(settings={"density": 0.1}), {"settings": {"density": 0.2}}),
    ],
)
def test_two_words_about_one_thing_are_refused(
    chosen: TaskChoice, said: dict[str, Any], planned: list[Scenario]
) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(said))}.*say it once"):
        simulate(4, task=chosen, **said)
    assert not planned


@pytest.mark.parametrize("name", SAID)
def test_without_a_task_nothing_is_said_of_learning(name: str, planned: list[Scenario]) -> None:
    with pytest.raises(UsageError, match=f"{name} .*task="):
        simulate(2, seconds=5, **{name: SAID[name]})
    assert not planned
