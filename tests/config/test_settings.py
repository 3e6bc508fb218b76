"""The table of settings and the records agree: whatever a user can decide has one place and one way to be written."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from p2pnode.cli import app, run
from p2pnode.config.options import Options, SimOptions
from p2pnode.config.settings import SETTINGS, SIM_SETTINGS
from p2pnode.simulate import Scenario, simulate

INTERNAL = {"role", "run.name", "train.max_steps", "train.circle"}  # set by programs and experiments, not by users


def fields_of(record: Any, prefix: str = "") -> set[str]:
    found: set[str] = set()
    for field in fields(record):
        value, name = getattr(record, field.name), f"{prefix}{field.name}"
        found |= fields_of(value, f"{name}.") if not prefix and is_dataclass(value) else {name}
    return found


def test_every_option_has_one_setting() -> None:
    written = [item.field for item in SETTINGS.values()]
    assert len(written) == len(set(written))
    assert set(written) | INTERNAL == fields_of(Options())


def test_every_option_of_a_simulation_has_one_setting() -> None:
    assert {item.field for item in SIM_SETTINGS.values()} == {f"sim.{field.name}" for field in fields(SimOptions)}


def test_the_command_and_python_describe_the_same_scenario(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scenarios: list[Scenario] = []

    def note(scenario: Scenario, *rest: object) -> Any:
        scenarios.append(scenario)
        raise KeyboardInterrupt  # nothing is run

    monkeypatch.setattr("p2pnode.simulate.run_scenario", note)  # which `simulate` calls
    monkeypatch.setattr("p2pnode.simulate.run.run_scenario", note)  # which the command calls
    given: dict[str, Any] = {
        "rounds": "7",
        "seed": "3",
        "rate": "20mbit",
        "loss": "5%",
        "speeds": "1-4",
        "churn": "0.2",
    }
    (tmp_path / "some.txt").write_text("text " * 20_000)
    data = str(tmp_path)
    train: dict[str, Any] = {"task": "text", "split": "parts", "policy": "gossip", "aim": "own", "data": data}
    flags = [word for name, value in {"peers": "5", **given, **train}.items() for word in (f"--{name}", value)]
    assert run(app, ["sim", *flags, "--set", "density=0.1"], "p2pnode") == 130
    with pytest.raises(KeyboardInterrupt):
        simulate(5, **given, **train, settings={"density": 0.1})
    by_command, by_python = scenarios
    assert by_command == by_python
