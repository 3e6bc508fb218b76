"""What a trainer draws from: own rows and received shards, each sample once; what its losses say; over restarts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from p2pnode.config.options import Quarantine
from p2pnode.shards.sample_states import ACTIVE, QUARANTINED, state_codes
from p2pnode.tasks.digits import Digits
from p2pnode.tasks.task import rows
from p2pnode.training.host import ModelHost
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import TaskProblem
from tests.known import known

OWN = np.arange(200)


class MeanOnly(Digits):
    """Tells the loss of a batch alone."""

    def loss(self, model, batch):
        return functional.cross_entropy(model(batch["x"]), batch["y"])


class Sure(Digits):
    def confidence(self, losses, batch):
        return batch["y"] / 10


class TwoNumbers(Digits):
    def losses(self, model, batch):
        return super().losses(model, batch)[:2]


def trainer(task=None, own=OWN, seed=0) -> Trainer:
    return Trainer(ModelHost(task or Digits()), own, seed)


def columns(which: np.ndarray, task=None) -> dict[str, np.ndarray]:
    return {name: column.numpy() for name, column in rows((task or Digits()).data(), torch.from_numpy(which)).items()}


def foreign(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Samples that are not among the task's."""
    rng = np.random.default_rng(seed)
    return {"x": rng.integers(17, 250, (count, 8, 8), dtype=np.uint8), "y": rng.integers(0, 10, count)}


class TestLosses:
    def test_steps_are_bit_for_bit_those_of_the_mean(self):
        each, mean = trainer(), trainer(MeanOnly())
        a, b = (one.steps(one.model_host.genesis, 30) for one in (each, mean))
        assert np.array_equal(a.weights, b.weights)
        assert a.loss == pytest.approx(b.loss, rel=1e-6)

    def test_they_say_how_sure_the_model_is_of_each_sample(self):
        one = trainer()
        weights = one.steps(one.model_host.genesis, 6).weights
        seen = ~np.isnan(one.pool.scores.confidence.values)
        assert seen.sum() == 6 * 32
        one.steps(weights, 600)
        assert np.nanmedian(one.pool.scores.confidence.values) > 0.9

    def test_a_task_that_tells_the_mean_alone_is_learned_without_them(self):
        one = trainer(MeanOnly())
        one.steps(one.model_host.genesis, 10)
        assert np.isnan(one.pool.scores.confidence.values).all()

    def test_a_task_may_say_itself_how_sure_it_is(self):
        one = trainer(Sure())
        one.steps(one.model_host.genesis, 6)
        values = one.pool.scores.confidence.values
        seen = ~np.isnan(values)
        assert np.allclose(values[seen], known(one.model_host.labels)[OWN][seen] / 10)

    def test_losses_of_another_shape_are_the_tasks_fault(self):
        one = trainer(TwoNumbers())
        with pytest.raises(TaskProblem, match="one for each sample"):
            one.steps(one.model_host.genesis, 1)


class TestSamples:
    def test_what_lies_in_the_hosts_data_takes_no_memory_and_is_there_once(self):
        one = trainer()
        one.pool.receive({"a": columns(np.arange(150, 250))})
        one.pool.receive({"b": columns(np.arange(240, 260))})
        assert len(one.pool) == 260 and len(one.pool._extra_columns["x"]) == 0
        assert len(one.pool.places_of("a")) == 100

    def test_what_does_not_is_an_extra_sample_and_trained_on(self):
        one, strange = trainer(), foreign(50)
        one.pool.receive({"a": strange})
        one.pool.receive({"b": {name: column[40:] for name, column in strange.items()}})
        assert len(one.pool) == 250
        places = torch.from_numpy(np.concatenate([one.pool.places_of("a"), [0]]))
        batch = one.pool.batch(places)
        assert np.array_equal(batch["x"][:50].numpy(), strange["x"]) and np.array_equal(batch["y"][:50], strange["y"])
        assert torch.equal(batch["x"][50], one.model_host.task.data()["x"][0])

    def test_a_dropped_shard_is_no_longer_trained_on(self):
        one = trainer()
        one.pool.receive({"a": foreign(50)})
        one.pool.drop(["a"])
        assert len(one.pool) == 200 and len(one.pool.places_of("a")) == 0

    def test_confidences_stay_with_their_samples_when_others_come(self):
        one = trainer()
        one.steps(one.model_host.genesis, 6)
        before = one.pool.scores.confidence.values.copy()
        one.pool.receive({"a": columns(np.arange(900, 1000))})
        one.pool.receive({"b": foreign(10)})
        assert np.array_equal(one.pool.scores.confidence.values[:200], before, equal_nan=True)
        assert np.isnan(one.pool.scores.confidence.values[200:]).all()

    def test_every_label_comes_alike_once_shards_came(self):
        labels = Digits().data()["y"].numpy()
        one = trainer(own=np.flatnonzero(labels == 3))
        one.pool.receive({"a": columns(np.flatnonzero(labels == 5)[:20])})
        drawn = torch.cat([one.pool.batch(one.pool.next()[0])["y"] for _ in range(8)])
        assert 0.4 < (drawn == 5).float().mean() < 0.6

    def test_a_node_that_received_nothing_goes_through_its_samples_as_ever(self):
        one = trainer()
        drawn = torch.cat([one.pool.next()[0] for _ in range(6)])
        assert len(drawn.unique()) == len(drawn)


class TestStates:
    HARD = np.where(np.arange(200) == 7, 0.01, 0.9)  # a model fails at one of them
    EVERY = np.arange(200)

    def judged(
        self, shares: np.ndarray, thrifty: bool = False, peers: str = "ab", balanced: bool = True, **when: Quarantine
    ) -> Trainer:
        """A trainer whose model, with work of `peers`, said the same of its samples pass after pass."""
        one = trainer()
        if balanced:
            one.pool.balance(thrifty)
        one.pool.quarantine(when.get("quarantine", "auto"))
        for _ in range(16):
            one.pool.note(self.EVERY, shares.astype(np.float32))
            one.pool.end_round(peers)
        return one

    def left_out(self, one: Trainer) -> list[int]:
        """What is drawn with no weight, which must be what is shown as quarantined."""
        drawn = [one.pool.next() for _ in range(500)]
        places = torch.cat([places for places, _ in drawn])
        weights = torch.cat([torch.ones(len(p)) if w is None else w for p, w in drawn])
        out = sorted(set(places[weights == 0].tolist()))
        assert out == np.flatnonzero(one.pool.states_used(self.EVERY) == QUARANTINED).tolist()
        return out

    def test_nothing_is_learnt_from_what_three_models_fail_at(self):
        assert self.left_out(self.judged(self.HARD)) == [7]

    @pytest.mark.parametrize("peers", ["", "a"])
    def test_without_work_of_two_other_peers_nothing_is_left_out(self, peers):
        one = self.judged(self.HARD, peers=peers)
        assert self.left_out(one) == []
        assert not one.pool.scores.states.quarantined.any()

    def test_work_that_came_long_ago_is_no_evidence(self):
        one = self.judged(np.full(200, 0.9))
        for _ in range(20):
            one.pool.note(self.EVERY, self.HARD.astype(np.float32))
            one.pool.end_round()
        assert self.left_out(one) == []

    @pytest.mark.parametrize(
        ("when", "balanced", "out"),
        [("auto", True, [7]), ("on", True, [7]), ("off", True, []), ("auto", False, []), ("on", False, [7])],
    )
    def test_the_setting_decides_and_the_view_shows_what_is_done(self, when, balanced, out):
        assert self.left_out(self.judged(self.HARD, balanced=balanced, quarantine=when)) == out

    def test_a_restart_goes_on_with_what_is_left_out(self):
        one = self.judged(self.HARD, balanced=False, quarantine="on")
        again = trainer()
        again.pool.quarantine("on")
        again.restore(one.state())
        assert self.left_out(again) == [7]

    def test_what_is_known_well_is_shown_as_active_unless_it_is_drawn_less_often(self):
        shares = np.where(np.arange(200) < 100, 0.99, 0.3)
        assert (self.judged(shares).pool.states_used(self.EVERY) == ACTIVE).all()
        assert (self.judged(shares, balanced=False).pool.states_used(self.EVERY) == ACTIVE).all()
        thrifty = self.judged(shares, thrifty=True).pool.states_used(self.EVERY)
        assert (thrifty[:100] != ACTIVE).all() and (thrifty[100:] == ACTIVE).all()

    def test_the_reserve_comes_seldom_and_weighs_more_where_that_is_wanted(self):
        shares = np.where(np.arange(200) < 100, 0.99, 0.3)
        places, weights = self.judged(shares, thrifty=True).pool.next()
        assert weights is not None and weights[places < 100].min() > weights[places >= 100].max()
        assert (places < 100).sum() < (places >= 100).sum()
        _, weights = self.judged(shares).pool.next()
        assert weights is not None and torch.allclose(weights, torch.ones(len(weights)))


class TestRestart:
    @pytest.mark.parametrize("first", ["a", "b"])
    def test_a_restored_trainer_goes_on_bit_for_bit_whatever_order_shards_are_read_in(self, first):
        shards = {"a": foreign(50), "b": foreign(30, seed=1), "c": columns(np.arange(300, 350))}
        one = trainer()
        for name in ("b", "a", "c"):
            one.pool.receive({name: shards[name]})
        weights = one.steps(one.model_host.genesis, 20).weights
        for _ in range(9):
            one.pool.end_round()
            weights = one.steps(weights, 5).weights
        again = trainer()
        for name in sorted(shards, key=lambda name: name != first):
            again.pool.receive({name: shards[name]})
        again.restore(one.state())
        assert np.array_equal(again.steps(weights, 10).weights, one.steps(weights, 10).weights)
        assert state_codes(again.pool.scores.states).tolist() == state_codes(one.pool.scores.states).tolist()

    def test_confidences_come_back_to_their_samples_though_others_are_there_now(self):
        one = trainer()
        one.pool.receive({"a": foreign(50)})
        one.steps(one.model_host.genesis, 30)
        again = trainer(own=np.arange(100, 400))
        again.pool.receive({"a": foreign(50)})
        again.restore(one.state())
        before, after = one.pool.scores.confidence.values, again.pool.scores.confidence.values
        assert np.array_equal(after[:100], before[100:200], equal_nan=True)
        assert np.array_equal(after[300:], before[200:], equal_nan=True)
        assert np.isnan(after[100:300]).all()
