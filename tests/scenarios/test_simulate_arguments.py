"""What `simulate` is given is used or refused: nothing is overridden or ignored in silence."""

from __future__ import annotations

from typing import Any

import pytest

from p2pnode import simulate as module
from p2pnode.config.options import TrainOptions
from p2pnode.config.split import Split
from p2pnode.simulate import Scenario, SimTraining, simulate
from p2pnode.wire.errors import UsageError

GIVEN: dict[str, Any] = {
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
def scenarios(monkeypatch: pytest.MonkeyPatch) -> list[Scenario]:
    """The scenarios that would be run."""
    found: list[Scenario] = []
    monkeypatch.setattr(module, "run_scenario", lambda scenario, *rest: found.append(scenario))
    return found


def training_of(scenarios: list[Scenario]) -> SimTraining:
    (scenario,) = scenarios
    assert scenario.training is not None
    return scenario.training


def test_training_options_stay_as_they_were_given(scenarios: list[Scenario]) -> None:
    simulate(4, task=TrainOptions("digits", device="cpu", policy="average", aim="own"), rounds=3)
    training = training_of(scenarios)
    assert (training.options.policy, training.options.aim) == ("average", "own")
    assert (training.rounds, training.split) == (3, Split("iid"))


def test_what_training_options_leave_open_can_be_given_with_them(scenarios: list[Scenario]) -> None:
    given = TrainOptions("digits", device="cpu", settings={"density": 0.1}, round_seconds=1.0)
    simulate(4, task=given, aim="own", settings={"density": 0.1})
    options = training_of(scenarios).options
    assert (options.aim, options.settings, options.round_seconds) == ("own", {"density": 0.1}, 1.0)


@pytest.mark.parametrize(
    ("options", "given"),
    [
        (TrainOptions(policy="average"), {"policy": "gossip"}),
        (TrainOptions(aim="shared"), {"aim": "own"}),
        (TrainOptions(settings={"density": 0.1}), {"settings": {"density": 0.2}}),
    ],
)
def test_two_values_for_one_option_are_refused(
    options: TrainOptions, given: dict[str, Any], scenarios: list[Scenario]
) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(given))}.*once"):
        simulate(4, task=options, **given)
    assert not scenarios


@pytest.mark.parametrize("name", GIVEN)
def test_without_a_task_options_of_training_are_refused(name: str, scenarios: list[Scenario]) -> None:
    with pytest.raises(UsageError, match=f"{name} .*task="):
        simulate(2, seconds=5, **{name: GIVEN[name]})
    assert not scenarios
