"""One model of a queues job at one node: its items, the learning rate, the running mean and its target."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from p2pnode.config.options import TrainOptions
from p2pnode.jobs.queues.items import Item
from p2pnode.jobs.queues.messages import OwnerFacts
from p2pnode.jobs.queues.model import QueueModel, SharedWeights
from p2pnode.jobs.queues.plan import PlannedModel, QueuesSettings, read_plan, write_model_plan
from p2pnode.jobs.train.binding import make_plan
from p2pnode.tasks.digits import Digits
from p2pnode.training.host import ModelHost
from p2pnode.wire.errors import Diverged
from p2pnode.wire.ids import Identity

ME = Identity(bytes([1]) * 32)
OPTIONS = TrainOptions(task="digits").with_defaults()


def model_of(target: float | None = None, rate: float = 0.0, learning_rate: float = 0.05) -> QueueModel:
    task = Digits(hidden=8)
    task.learning_rate = learning_rate
    host = ModelHost(task)
    planned = PlannedModel("small", make_plan(host, OPTIONS, 0), target)
    return QueueModel(planned, "run/zoo/small", ME, host, None, 0, QueuesSettings(rate=rate), 10.0, 0.0)


def at(model: QueueModel, producers: int, items: int = 0) -> SharedWeights:
    return SharedWeights(model.host.genesis.copy(), items, producers)


def test_the_more_producers_the_larger_are_local_steps_and_the_fewer_weights_are_in_an_item() -> None:
    model = model_of()
    assert [round(model.rate(producers), 2) for producers in (0, 1, 4, 8, 100)] == [1.0, 1.0, 2.0, 2.5, 2.5]
    densities = [model.density(producers) for producers in (0, 1, 2, 4, 8)]
    assert densities[:2] == [1.0, 1.0] and densities == sorted(densities, reverse=True) and densities[-1] < 0.03
    assert model_of(rate=1.5).rate(8) == 1.5, "the founder may set it"


def test_a_model_whose_steps_diverge_is_trained_with_smaller_ones_for_a_while() -> None:
    model = model_of(learning_rate=1e30)
    for _ in range(3):
        with pytest.raises(Diverged):
            model.train(at(model, 4))
    assert model.rate(4) == 2.0 / 8
    model.host.task.learning_rate = 0.0
    model.trainer.reset_optimizer()
    for _ in range(30):
        model.train(at(model, 4))
    assert model.rate(4) == 2.0


@pytest.mark.parametrize("learning_rate", [0.05, 0.5, 2.0])
def test_no_honest_item_is_larger_than_an_owner_takes(learning_rate: float) -> None:
    model = model_of(learning_rate=learning_rate)
    for number in range(12):
        result, payload = model.train(at(model, 4))
        item = Item(number + 1, 0, result.steps, result.samples, min(result.loss, 1e30), payload)
        assert model.check([item], model.log.weights) == ""


def test_the_running_mean_follows_weights_and_has_less_noise() -> None:
    model, rng = model_of(), np.random.default_rng(1)
    goal = model.host.genesis + 1.0
    for items in range(10, 2010, 10):
        noisy = (goal + rng.normal(0.0, 0.5, len(goal))).astype(np.float32)
        found = model.move_readout(SharedWeights(noisy, items, 2))
    assert float(np.abs(found - goal).mean()) < 0.3 * float(np.abs(noisy - goal).mean())
    again = model.move_readout(SharedWeights(noisy, 2000, 2)).copy()
    assert (again == model.move_readout(SharedWeights(noisy, 1990, 2))).all(), "what was taken back changes nothing"


def test_a_target_is_reached_by_what_the_owner_says_and_travels_in_the_plan() -> None:
    model = model_of(target=0.9)
    assert not model.good_enough(0.0, 1.0), "nobody has said anything"
    for accuracy, reached in ((0.89, False), (0.9, True), (None, False)):
        model.note_facts(OwnerFacts(0, 0.0, 0.0, accuracy), 1.0)
        assert model.good_enough(0.0, 2.0) == reached
    model.note_facts(OwnerFacts(0, 0.0, 0.0, 0.99), 1.0)
    assert not model.good_enough(0.0, 1000.0), "that was long ago"
    planned = PlannedModel("small", make_plan(model.host, OPTIONS, 0), 0.9)
    other = msgspec.structs.replace(planned, name="wide", target=None)
    written = {"models": [write_model_plan(planned), write_model_plan(other)]}
    assert [one.target for one in read_plan(written).models] == [0.9, None]
