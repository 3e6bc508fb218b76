"""A node whose model is not the run's stops with one line, and the others learn as if it had not come."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from p2pnode.config.options import Options
from p2pnode.jobs.train import binding, model_check
from p2pnode.jobs.train.messages import GetProbe, ProbeIs
from p2pnode.jobs.train.plan import ModelSketch
from p2pnode.simulate import SIMULATED, Scenario, SimResult, SimTraining, run_scenario
from p2pnode.wire.errors import UsageError
from p2pnode.wire.ids import PeerId
from tests.known import known

TASK = str(Path(__file__).with_name("other_models.py"))
TRAINING = SimTraining(replace(SIMULATED, task=f"{TASK}:Founded"), rounds=12)
PLAN = Scenario(peers=4, seed=2, seconds=150.0, sample_every=0.0, spread=6.0, training=TRAINING)
ODD = 2


def play(odd: str) -> SimResult:
    """One node has another class of the task's file."""

    def adjust(options: Options, index: int, starts: int) -> Options:
        return replace(options, train=replace(options.train, task=f"{TASK}:{odd}")) if index == ODD else options

    return run_scenario(replace(PLAN, adjust=adjust))


def warnings(result: SimResult, index: int) -> list[str]:
    return [event.text for event in known(result.statuses[index]).events if event.kind == "model"]


def test_models_are_not_compared_on_different_inputs() -> None:
    result = play("Probe")
    assert result.errors == {} and result.finished


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ("Activation", "an activation or another part of forward() differs"),
        ("Base", "frozen parameter '1.weight' has other values"),
        ("Loss", "loss() or losses() differs"),
        ("Later", "at equal weights, its outputs on the run's probe are others"),  # found by asking the founder
    ],
)
def test_the_joiner_stops_and_the_others_go_on(odd: str, words: str) -> None:
    result = play(odd)
    assert list(result.errors) == [ODD]
    error = result.errors[ODD]
    assert isinstance(error, UsageError) and words in str(error)
    assert len(result.accuracies()) == 3
    assert min(result.accuracies()) > 0.5
    for index in (0, 1, 3):
        status = known(result.statuses[index])
        assert known(status.jobs["main"].train).hash_mismatches == 0 and not warnings(result, index)


def test_equal_models_compare_once_and_find_no_difference() -> None:
    result = play("Founded")
    assert result.errors == {}
    assert not any(warnings(result, index) for index in range(4))


class TestWithoutSketch:
    """The founder could make no sketch: partners compare what their models compute at equal heads."""

    @pytest.fixture(autouse=True)
    def _no_sketch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = binding.model_sketch

        def without(model_host: Any) -> ModelSketch:
            return msgspec.structs.replace(found(model_host), fixed=(), outputs=(), losses=())

        monkeypatch.setattr(binding, "model_sketch", without)

    def test_the_joiner_stops_before_it_has_published_anything(self) -> None:
        result = play("Activation")
        assert list(result.errors) == [ODD]
        assert "at equal weights, its outputs on the run's probe are others" in str(result.errors[ODD])
        authors = {row.id for row in known(result.statuses[0]).peers if row.training().head}
        assert len(authors) == 2, "the founder has entries of the two others"

    def test_a_lying_partner_stops_nobody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        honest, liars = model_check.ModelCheck.answer, list[str]()

        async def lie(self: Any, peer: PeerId, request: GetProbe) -> ProbeIs:
            me = self._services.identity.peer_id
            liars.extend([me] if not liars and me != self._founder else [])
            found = await honest(self, peer, request)
            return ProbeIs((9.0,) * 34, (9.0,) * 34) if me in liars else found

        monkeypatch.setattr(model_check.ModelCheck, "answer", lie)
        result = play("Founded")
        assert liars
        assert result.errors == {} and result.finished
