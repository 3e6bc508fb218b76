"""Local steps: they learn, do the same again from a saved state, and survive what a task gets wrong."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from p2pnode.compression.weights import layout_of, read_weights
from p2pnode.tasks.digits import Digits
from p2pnode.tasks.optimizers import AdamW
from p2pnode.tasks.task import Task, rows
from p2pnode.training.host import ModelHost, build_model
from p2pnode.training.pool import PoolState
from p2pnode.training.threads import choose_threads, thread_counts
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import Diverged, LocalProblem, TaskProblem, UsageError
from tests.known import known


class Small(Digits):
    """Digits in variations that training must cope with."""

    kind = "plain"
    tool = "sgd"
    batch_size = 16

    def model(self):
        layers: dict[str, Callable[[], list[nn.Module]]] = {
            "plain": lambda: [nn.Linear(64, 10)],
            "dropout": lambda: [nn.Linear(64, 16), nn.Dropout(0.5), nn.Linear(16, 10)],
            "batchnorm": lambda: [nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Linear(16, 10)],
            "frozen": lambda: [nn.Linear(64, 16).requires_grad_(False), nn.ReLU(), nn.Linear(16, 10)],
        }
        return nn.Sequential(nn.Flatten(), Half(), *layers[self.kind]())

    def optimizer(self, parameters):
        parts = list(parameters)
        makers = {
            "sgd": lambda: super(Small, self).optimizer(parts),
            "adamw": lambda: AdamW(0.01),
            "torch sgd": lambda: torch.optim.SGD(parts, lr=0.05, momentum=0.9),
            "torch adamw": lambda: torch.optim.AdamW(parts, lr=0.01),
            "groups": lambda: torch.optim.AdamW([{"params": [part], "lr": 0.01} for part in parts]),
            "rmsprop": lambda: torch.optim.RMSprop(parts, lr=0.001),
        }
        return makers[self.tool]()


class Half(nn.Module):
    def forward(self, x):
        return x.float() / 16


class Tied(Digits):
    def model(self):
        first, second, last = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False), nn.Linear(64, 10)
        second.weight = first.weight
        return nn.Sequential(nn.Flatten(), Half(), first, nn.ReLU(), second, nn.ReLU(), last)


class Breaks(Small):
    """Its loss stops being a number at a certain call."""

    at = 5
    calls = 0

    def loss(self, model, batch):
        self.calls += 1
        return super().loss(model, batch) * (math.nan if self.calls == self.at else 1.0)


def trainer(task: Task | None = None, **more) -> Trainer:
    return Trainer(ModelHost(task or Small()), **more)


def trained(one: Trainer, weights: np.ndarray, rounds: int, steps: int = 3) -> np.ndarray:
    for _ in range(rounds):
        weights = one.steps(weights, steps).weights
    return weights


def use_all(task: Task) -> None:
    one = trainer(task)
    one.steps(one.model_host.genesis, 1)
    one.evaluate(one.model_host.genesis)


class TestLearning:
    def test_digits_alone_reach_95_percent(self):
        alone = Trainer(ModelHost(Digits()), seed=1)
        weights = trained(alone, alone.model_host.genesis, rounds=60, steps=20)
        found = alone.evaluate(weights)
        assert known(found.accuracy) >= 0.95 and found.samples == 360

    def test_the_weights_given_stay_as_they_are(self):
        one = trainer()
        given = one.model_host.genesis.copy()
        result = one.steps(given, 5)
        assert np.array_equal(given, one.model_host.genesis)
        assert not np.array_equal(result.weights, given) and result.weights.dtype == np.float32
        assert (result.steps, result.samples) == (5, 80) and math.isfinite(result.loss)

    @pytest.mark.parametrize("tool", ["sgd", "adamw"])
    def test_the_same_as_a_plain_torch_loop(self, tool):
        one = trainer(Small(tool=tool), seed=3)
        indices = [one.pool.next()[0] for _ in range(20)]
        model = build_model(Small(), 0)
        makers = {
            "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
            "adamw": lambda: torch.optim.AdamW(model.parameters(), lr=0.01),
        }
        theirs, task = makers[tool](), Small()
        for which in indices:
            theirs.zero_grad()
            task.loss(model, rows(task.data(), which)).backward()
            theirs.step()
        one.pool.restore(PoolState(), 0)
        mine = one.steps(one.model_host.genesis, 20).weights
        np.testing.assert_allclose(mine, read_weights(model, layout_of(model)), rtol=0, atol=2e-7)

    @pytest.mark.parametrize("tool", ["torch sgd", "torch adamw", "groups", "rmsprop"])
    def test_torch_optimizers_work_and_match_ours_where_they_are_the_same(self, tool):
        one = trainer(Small(tool=tool), seed=3)
        weights = trained(one, one.model_host.genesis, rounds=10)
        assert one.evaluate(weights).loss < one.evaluate(one.model_host.genesis).loss
        if tool.startswith("torch "):
            ours = trainer(Small(tool=tool.removeprefix("torch ")), seed=3)
            np.testing.assert_allclose(weights, trained(ours, ours.model_host.genesis, rounds=10), rtol=0, atol=1e-6)

    def test_the_schedule_follows_the_step_it_is_given(self):
        class Late(Small):
            def rate(self, step):
                return 1.0 if step >= 100 else 0.0

        one = trainer(Late())
        assert np.array_equal(one.steps(one.model_host.genesis, 2).weights, one.model_host.genesis)
        assert np.array_equal(one.steps(one.model_host.genesis, 2, at=98).weights, one.model_host.genesis)
        assert not np.array_equal(one.steps(one.model_host.genesis, 2, at=99).weights, one.model_host.genesis)
        assert np.array_equal(one.steps(one.model_host.genesis, 2, at=200, rate=0.0).weights, one.model_host.genesis)

    def test_only_own_samples_are_used(self):
        one = trainer(samples=np.flatnonzero(Small().data()["y"].numpy() < 2))
        weights = trained(one, one.model_host.genesis, rounds=40)
        answers = torch.from_numpy(one.model_host.take())
        assert answers.shape == weights.shape
        test = Small().test_data()
        few, others = (rows(test, torch.nonzero((test["y"] < 2) == own).flatten()) for own in (True, False))
        assert known(one.evaluate(weights, few).accuracy) > 0.95
        assert known(one.evaluate(weights, others).accuracy) < 0.2

    def test_frozen_parameters_stay(self):
        one = trainer(Small(kind="frozen"))
        frozen = one.model_host.model.get_parameter("2.weight").clone()
        assert one.model_host.layout.size == 16 * 10 + 10
        trained(one, one.model_host.genesis, rounds=3)
        assert torch.equal(frozen, one.model_host.model.get_parameter("2.weight"))

    def test_tied_weights_count_once_and_stay_tied(self):
        one = trainer(Tied())
        assert one.model_host.layout.size == 64 * 64 + 64 * 10 + 10
        weights = trained(one, one.model_host.genesis, rounds=10)
        assert torch.equal(
            one.model_host.model.get_parameter("2.weight"), one.model_host.model.get_parameter("4.weight")
        )
        assert one.evaluate(weights).loss < one.evaluate(one.model_host.genesis).loss

    def test_speed_is_measured_with_the_clock_it_is_given(self):
        now = iter(range(100))
        one = trainer(clock=lambda: float(next(now)))
        assert one.speed == 0
        assert one.steps(one.model_host.genesis, 4).seconds == 1.0
        assert one.speed == 4.0
        one.steps(one.model_host.genesis, 9)
        assert one.speed == pytest.approx(5.0)


class TestSharing:
    def test_trainers_on_one_bench_do_not_disturb_each_other(self):
        model_host = ModelHost(Small(kind="dropout", tool="adamw"))
        together = [Trainer(model_host, seed=seed) for seed in (1, 2)]
        weights = [model_host.genesis, model_host.genesis]
        for _ in range(4):
            weights = [one.steps(own, 3).weights for one, own in zip(together, weights, strict=True)]
            together[0].evaluate(weights[1])
        for seed, mine in zip((1, 2), weights, strict=True):
            alone = Trainer(ModelHost(Small(kind="dropout", tool="adamw")), seed=seed)
            assert np.array_equal(mine, trained(alone, alone.model_host.genesis, rounds=4))

    def test_threads_may_share_a_bench(self):
        model_host = ModelHost(Small())
        results: dict[int, np.ndarray] = {}

        def work(seed: int) -> None:
            results[seed] = trained(Trainer(model_host, seed=seed), model_host.genesis, rounds=10)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for seed, weights in results.items():
            assert np.array_equal(
                weights, trained(Trainer(ModelHost(Small()), seed=seed), model_host.genesis, rounds=10)
            )

    def test_nobody_elses_random_numbers_are_used_or_disturbed(self):
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        one = trainer(Small(kind="dropout"), seed=1)
        weights = trained(one, one.model_host.genesis, rounds=2)
        assert torch.equal(torch.rand(3), expected)
        torch.manual_seed(77)
        other = trainer(Small(kind="dropout"), seed=1)
        assert np.array_equal(weights, trained(other, other.model_host.genesis, rounds=2))

    def test_model_init_depends_on_the_seed_only(self):
        assert np.array_equal(ModelHost(Digits(), seed=4).genesis, ModelHost(Digits(), seed=4).genesis)
        assert not np.array_equal(ModelHost(Digits(), seed=4).genesis, ModelHost(Digits(), seed=5).genesis)

    def test_statistics_of_batchnorm_are_each_trainers_own(self):
        model_host = ModelHost(Small(kind="batchnorm"))
        low, high = (
            Trainer(model_host, np.flatnonzero((np.asarray(model_host.labels) < 5) == own)) for own in (True, False)
        )
        a, b = trained(low, model_host.genesis, 5), trained(high, model_host.genesis, 5)
        assert not all(
            np.array_equal(array, high.state()[name]) for name, array in low.state().items() if "mean" in name
        )
        before = low.state()
        low.evaluate(a), high.evaluate(b)
        assert all(np.array_equal(array, before[name]) for name, array in low.state().items())
        assert low.evaluate(a) == low.evaluate(a)
        assert {module.momentum for module in model_host.model.modules() if isinstance(module, nn.BatchNorm1d)} == {0.1}


class TestResuming:
    @pytest.mark.parametrize("tool", ["sgd", "adamw", "torch sgd", "torch adamw", "groups", "rmsprop"])
    @pytest.mark.parametrize("kind", ["dropout", "batchnorm"])
    def test_a_restored_trainer_goes_on_bit_for_bit(self, tool, kind):
        task = Small(tool=tool, kind=kind)
        one = trainer(task, samples=np.arange(100), seed=2)
        weights = trained(one, one.model_host.genesis, rounds=5)
        saved = {name: array.copy() for name, array in one.state().items()}
        expected = trained(one, weights, rounds=5)
        other = trainer(task, samples=np.arange(100), seed=2)
        other.restore(saved)
        assert other.steps_done == 15
        assert np.array_equal(trained(other, weights, rounds=5), expected)
        assert all(np.array_equal(array, one.state()[name]) for name, array in other.state().items() if name != "speed")

    def test_a_fresh_state_restores_too(self):
        one, other = trainer(), trainer()
        other.restore(one.state())
        assert np.array_equal(trained(one, one.model_host.genesis, 2), trained(other, other.model_host.genesis, 2))

    def test_a_saved_state_is_a_copy(self):
        one = trainer(Small(tool="adamw"))
        weights = trained(one, one.model_host.genesis, 2)
        saved = one.state()
        copy = {name: array.copy() for name, array in saved.items()}
        trained(one, weights, 2)
        assert all(np.array_equal(saved[name], copy[name]) for name in saved)

    @pytest.mark.parametrize("damage", ["counts", "shape", "nan", "buffer", "foreign"])
    @pytest.mark.parametrize("tool", ["adamw", "rmsprop"])
    def test_another_models_state_is_refused_and_changes_nothing(self, damage, tool):
        task = Small(tool=tool, kind="batchnorm")
        one, other = trainer(task, seed=1), trainer(task, seed=1)
        weights = trained(one, one.model_host.genesis, 3)
        trained(other, other.model_host.genesis, 3)
        bad = one.state()
        moment = next(name for name in bad if name.startswith("optimizer/") and bad[name].ndim)
        if damage == "counts":
            del bad["counts"]
        elif damage == "shape":
            bad[moment] = np.zeros(3, np.float32)
        elif damage == "nan":
            bad[moment] = np.full_like(bad[moment], np.nan)
        elif damage == "buffer":
            bad[next(name for name in bad if name.startswith("buffer/"))] = np.zeros(3, np.float32)
        else:
            bad = trainer(Digits()).state()
        with pytest.raises(ValueError, match=r"moment|counts|buffers"):
            other.restore(bad)
        assert np.array_equal(trained(other, weights, 3), trained(one, weights, 3))

    def test_other_samples_begin_their_own_order(self):
        one = trainer(samples=np.arange(50))
        one.steps(one.model_host.genesis, 4)
        one.use(np.arange(50))
        assert one.pool.position == 4
        one.use(np.arange(60))
        assert (one.pool.position, one.samples) == (0, 60)


class TestBadLuck:
    @pytest.mark.parametrize("tool", ["sgd", "adamw", "torch adamw"])
    def test_a_loss_that_is_no_number_is_reported_and_training_goes_on(self, tool):
        one = trainer(Breaks(tool=tool))
        weights = one.steps(one.model_host.genesis, 3).weights
        kept = weights.copy()
        with pytest.raises(Diverged, match="after 4 local steps") as caught:
            one.steps(weights, 3)
        assert caught.value.steps == 1 and math.isnan(caught.value.loss)
        assert np.array_equal(weights, kept)
        after = one.steps(weights, 20)
        assert np.isfinite(after.weights).all() and one.evaluate(after.weights).loss < one.evaluate(kept).loss

    def test_a_gradient_that_is_no_number_is_caught_as_well(self):
        class Root(Small):
            def loss(self, model, batch):
                return super().loss(model, batch) + (next(model.parameters()).sum() * 0).sqrt()

        one = trainer(Root())
        with pytest.raises(Diverged, match="the gradient was not finite"):
            one.steps(one.model_host.genesis, 1)

    def test_weights_that_blow_up_are_caught(self):
        one = trainer(Small(learning_rate=1e30))
        with pytest.raises(Diverged, match="a weight left ±64"):
            one.steps(one.model_host.genesis, 3)

    def test_a_loss_that_changes_its_shape_later_is_named(self):
        class Changes(Small):
            calls = 0

            def loss(self, model, batch):
                self.calls += 1
                whole = model(batch["x"]).square()
                return whole.mean() if self.calls < 3 else whole

        one = trainer(Changes())
        with pytest.raises(TaskProblem, match=r"loss\(\) raised RuntimeError: grad can be implicitly created only for"):
            one.steps(one.model_host.genesis, 5)

    def test_no_samples(self):
        one = trainer(samples=np.empty(0, np.int64))
        assert one.samples == 0
        with pytest.raises(LocalProblem, match="no samples to train on"):
            one.steps(one.model_host.genesis, 1)
        assert one.evaluate(one.model_host.genesis).samples == 360

    @pytest.mark.parametrize("method", ["model", "data", "test_data", "optimizer", "loss", "evaluate"])
    def test_what_a_task_raises_is_named(self, method):
        def broken(self, *arguments):
            raise KeyError("a slip\nof the author")

        task = type("Faulty", (Small,), {method: broken, "name": "faulty"})()
        with pytest.raises(TaskProblem) as caught:
            use_all(task)
        words = str(caught.value)
        assert words.startswith(f"task faulty: {method}() raised KeyError: ")
        assert "test_trainer.py:" in words and "\n" not in words

    @pytest.mark.parametrize(
        ("made", "said"),
        [
            (lambda self: "a model", "gave str, not a torch module"),
            (lambda self: nn.ReLU(), "no trainable parameters"),
            (lambda self: nn.Linear(2, 2).requires_grad_(False), "no trainable parameters"),
        ],
    )
    def test_what_is_no_model_is_refused(self, made, said):
        with pytest.raises(TaskProblem, match=said):
            ModelHost(type("Faulty", (Small,), {"model": made})())

    @pytest.mark.parametrize(
        ("made", "said"),
        [
            (lambda self: [1, 2], "must give a dict of tensors"),
            (lambda self: {"x": [1, 2]}, "must give a dict of tensors"),
            (lambda self: {}, "gave no samples"),
            (lambda self: {"x": torch.zeros(0, 2)}, "gave no samples"),
            (lambda self: {"x": torch.zeros(3), "y": torch.zeros(2)}, "columns of unequal length"),
        ],
    )
    @pytest.mark.parametrize("method", ["data", "test_data"])
    def test_what_are_no_data_is_refused(self, method, made, said):
        with pytest.raises(TaskProblem, match=said) as caught:
            ModelHost(type("Faulty", (Small,), {method: made})())
        assert f"{method}()" in str(caught.value)

    def test_a_model_beyond_memory_is_refused_before_it_is_built(self):
        class Huge(Small):
            def model(self):
                return nn.Sequential(nn.Linear(1 << 20, 1 << 18), nn.LSTM(8, 8), nn.Embedding(1000, 8))

        with pytest.raises(LocalProblem, match=r"a model of 274,\d+ M parameters needs about 7,\d+.\d GB"):
            ModelHost(Huge())

    def test_running_out_of_memory_is_the_machines_fault(self):
        def broken(self):
            raise MemoryError

        with pytest.raises(LocalProblem, match=r"data\(\) ran out of memory"):
            ModelHost(type("Faulty", (Small,), {"data": broken})())

    def test_a_device_that_is_not_there(self):
        with pytest.raises(UsageError, match="'gpu' is not a device"):
            ModelHost(Small(), device="gpu")
        if not torch.cuda.is_available():
            with pytest.raises(UsageError, match="cuda is not available"):
                ModelHost(Small(), device="cuda")
        assert ModelHost(Small(), device="auto").device.type in ("cpu", "cuda", "mps")


class TestThreads:
    @pytest.mark.parametrize(
        ("cores", "counts"), [(1, [1]), (2, [1]), (3, [1, 2]), (4, [1, 2]), (5, [1, 2, 4]), (8, [1, 2, 4])]
    )
    def test_a_core_is_left_free(self, cores, counts):
        assert thread_counts(cores) == counts

    @pytest.mark.parametrize(("times", "best"), [({1: 1.0, 2: 0.5}, 2), ({1: 1.0, 2: 0.95}, 1), ({1: 1.0, 2: 30.0}, 1)])
    def test_the_fastest_is_taken_if_it_is_worth_a_core(self, times, best):
        before = torch.get_num_threads()
        now = 0.0

        def clock() -> float:  # every look at it costs what a step takes with so many threads
            nonlocal now
            now += times[torch.get_num_threads()] / 4
            return now

        try:
            assert choose_threads(ModelHost(Small()), cores=4, seconds=20.0, clock=clock) == best
            assert torch.get_num_threads() == best
        finally:
            torch.set_num_threads(before)
