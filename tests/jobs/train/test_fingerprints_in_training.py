"""When a learning node takes its model's fingerprint, of which weights, and what it does when there is none."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from torch import nn

from p2pnode.compression.weights import Floats
from p2pnode.config.options import TrainOptions
from p2pnode.config.until import Until
from p2pnode.jobs.train.binding import make_plan
from p2pnode.jobs.train.prepare import comparing
from p2pnode.jobs.train.steps import RoundSteps
from p2pnode.merging.policy import MergeResult, RoundFacts
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.similarity.fingerprint import FINGERPRINT_BYTES
from p2pnode.tasks.task import Samples, rows
from p2pnode.training.fingerprinter import Fingerprinter
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import LocalProblem
from tests.jobs.train.setups import with_options
from tests.jobs.train.test_train_job import SETUP, Lines, Setup, learned

ROUNDS = 6


class Speechless(Lines):
    """Its activations are all the same, whatever goes in."""

    def model(self) -> nn.Module:
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
        nn.init.constant_(model.get_parameter("0.bias"), -30.0)
        return model


class Noting:
    """Takes true fingerprints and notes of which weights; the ones numbered in `fails` it cannot take."""

    def __init__(self, true: Fingerprinter, note: Callable[[str, Floats], None], fails: tuple[int, ...] = ()) -> None:
        self.true, self.note, self.fails = true, note, fails
        self.taken = 0

    def due(self, now: float) -> bool:
        return True

    def take(self, trainer: Trainer, weights: Floats, clock: Callable[[], float]) -> bytes:
        self.taken += 1
        self.note("fingerprint", weights)
        if self.taken in self.fails:
            raise LocalProblem("no fingerprint: activations are all zero")
        return self.true.take(trainer, weights, clock)


def announced(setup: Setup) -> bytes:
    """The fingerprint in what this node would say of itself now."""
    return setup.learning.announcement().fingerprint


def test_it_is_of_the_trained_weights_before_they_are_recorded_and_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, Floats]] = []

    def note(what: str, weights: Floats) -> None:
        said.append((what, np.array(weights)))

    train = RoundSteps.train

    async def noted_training(self, steps, rate, at=0):
        begun, result = await train(self, steps, rate, at)
        note("trained", result.weights)
        assert not np.array_equal(begun, result.weights)
        return begun, result

    monkeypatch.setattr(RoundSteps, "train", noted_training)

    def setup() -> Setup:
        made = Setup()
        made.learning.fingerprinter = Noting(Fingerprinter(made.learning.model_host, 1), note)  # type: ignore[assignment]
        policy = made.policy
        record, merge = policy.record, policy.merge

        def noted_record(begun: Floats, after: Floats, facts: RoundFacts) -> object:
            note("record", after)
            return record(begun, after, facts)

        def noted_merge() -> MergeResult:
            note("merge", np.empty(0, np.float32))
            return merge()

        monkeypatch.setattr(policy, "record", noted_record)
        monkeypatch.setattr(policy, "merge", noted_merge)
        return made

    learned(setup)
    assert [what for what, _ in said] == ["trained", "fingerprint", "record", "merge"] * ROUNDS
    for number in range(0, len(said), 4):
        assert np.array_equal(said[number][1], said[number + 1][1])


def test_a_model_that_shows_nothing_is_warned_of_and_learns_on_without_a_fingerprint() -> None:
    def setup() -> Setup:
        made = Setup(Speechless(), with_options(SETUP, until=Until("rounds", ROUNDS)))
        made.learning.fingerprinter = Fingerprinter(made.learning.model_host, 1)
        return made

    made, reason = learned(setup)
    assert reason == "6 rounds are done"
    assert [event.warning for event in made.events if event.kind == "fingerprint"] == [True]
    assert made.said("fingerprint")[0].startswith("no fingerprint: activations")
    assert announced(made) == b""


@pytest.mark.parametrize(("fails", "size"), [((ROUNDS,), 0), ((ROUNDS - 1,), FINGERPRINT_BYTES)])
def test_the_last_good_one_is_withdrawn_until_there_is_another(fails: tuple[int, ...], size: int) -> None:
    def setup() -> Setup:
        made = Setup()
        true = Fingerprinter(made.learning.model_host, 1)
        made.learning.fingerprinter = Noting(true, lambda what, weights: None, fails)  # type: ignore[assignment]
        return made

    made, _ = learned(setup)
    assert len(announced(made)) == size
    assert bool(made.learning.similarity.communities.of) == bool(size)


class OtherVersion(Lines):
    """The same task on data of another version."""

    def test_data(self) -> Samples:
        return {name: column.flip(0) for name, column in self.data().items()}


class Lonely(Lines):
    """Has one input to compare by, which is too few."""

    def test_data(self) -> Samples:
        return rows(self.data(), slice(0, 1))


@pytest.mark.parametrize(
    ("task", "words"), [(Lines(), ""), (OtherVersion(), "its probe is not the run's"), (Lonely(), "probe() raised")]
)
def test_a_node_that_cannot_be_compared_with_others_says_so(task: Lines, words: str) -> None:
    async def main() -> tuple[Setup, Fingerprinter | None]:
        made = Setup(task)
        plan = make_plan(ModelHost(Lines(), "cpu", seed=1), TrainOptions(), seed=1)
        return made, await comparing(made.learning.model_host, plan, made.services)

    made, found = run_virtual(main())
    assert [(event.kind, event.warning) for event in made.events] == [("fingerprint", True)] * bool(words)
    assert all("cannot be compared" in text and words in text for text in made.said("fingerprint"))
    assert (found is None) == isinstance(task, Lonely)
