"""Training on data that are read by index or streamed: the same steps as in memory, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from p2pnode import Task
from p2pnode.shards import rows as shard_rows
from p2pnode.tasks.digits import Digits
from p2pnode.training.host import ModelHost
from p2pnode.training.read_ahead import SLOW, ReadAhead
from p2pnode.training.trainer import Trainer
from p2pnode.wire.errors import TaskProblem

COLUMNS = Digits().data()


class Rows(Dataset):
    """Rows of columns, one by one."""

    def __init__(self, columns, bad=()):
        self.columns, self.bad, self.readers = columns, bad, set()
        self.targets = columns["y"].tolist()

    def __len__(self):
        return len(self.columns["y"])

    def __getitem__(self, row):
        self.readers.add(threading.current_thread().name)
        if row in self.bad:
            raise OSError(f"picture {row} is damaged")
        return {name: column[row] for name, column in self.columns.items()}


class ByIndex(Digits):
    hidden = 16
    bad: tuple[int, ...] = ()

    def data(self):
        return Rows(COLUMNS, self.bad)

    def test_data(self):
        return Rows(Digits().test_data())


class Passing(Digits):
    """The digits as a stream, each pass in another order."""

    hidden = 16

    def data(self):
        class Stream(IterableDataset):
            def __iter__(self):
                for row in torch.randperm(len(COLUMNS["y"])).tolist():
                    yield COLUMNS["x"][row], COLUMNS["y"][row]

        return Stream()


def host(task: Task, **options) -> ModelHost:
    return ModelHost(task, seed=1, **options)


class TestByIndex:
    def test_training_and_evaluation_are_those_of_tensors_in_memory(self):
        pairs = [host(Digits(hidden=16)), host(ByIndex())]
        results = []
        for model_host in pairs:
            trainer = Trainer(model_host, np.arange(300), seed=3)
            weights = trainer.steps(model_host.genesis, 30).weights
            results.append((weights, trainer.evaluate(weights), trainer.pool.scores.confidence.values))
        assert np.array_equal(results[0][0], results[1][0])
        assert results[0][1].accuracy == results[1][1].accuracy
        assert results[0][1].loss == pytest.approx(results[1][1].loss)
        assert np.array_equal(results[0][2], results[1][2], equal_nan=True)
        assert np.array_equal(np.asarray(pairs[0].labels), np.asarray(pairs[1].labels)) and pairs[1].classes == 10

    def test_a_data_loader_over_rows_is_read_by_index(self):
        class Loaded(ByIndex):
            def data(self):
                return DataLoader(Rows(COLUMNS), batch_size=7)

        one, other = (
            Trainer(host(kind()), seed=3).steps(host(kind()).genesis, 3).weights for kind in (ByIndex, Loaded)
        )
        assert np.array_equal(one, other)

    def test_received_samples_are_mixed_with_rows_that_are_read(self):
        trainer = Trainer(host(ByIndex()), np.arange(50))
        received = {"x": COLUMNS["x"][100:120].numpy() + 1, "y": COLUMNS["y"][100:120].numpy()}
        trainer.pool.receive({"aa": received})
        batch = trainer.pool.batch(torch.tensor([0, 50, 1, 69]))
        assert torch.equal(batch["y"], torch.cat([COLUMNS["y"][[0]], *received_labels(received)])[[0, 1, 3, 2]])
        assert np.isfinite(trainer.steps(trainer.model_host.genesis, 5).loss)

    def test_bad_rows_are_left_out_and_training_goes_on(self):
        task = ByIndex()
        task.bad = (3, 4)
        trainer = Trainer(host(task), np.arange(64))
        trainer.steps(trainer.model_host.genesis, 4)
        assert sorted(trainer.pool.problems) == [3, 4]
        assert "picture 3 is damaged" in trainer.pool.problems[3] and __file__ in trainer.pool.problems[3]
        seen = ~np.isnan(trainer.pool.scores.first)
        assert seen.sum() == 62 and not seen[[3, 4]].any()

    def test_only_bad_rows_end_with_one_line(self):
        task = ByIndex()
        task.bad = tuple(range(100, 164))
        trainer = Trainer(host(task), np.arange(100, 164))
        with pytest.raises(TaskProblem, match=r"data\(\) gives rows that cannot be read.*is damaged"):
            trainer.steps(trainer.model_host.genesis, 1)

    def test_batchnorm_is_fitted_on_rows_that_are_read(self):
        class Normed(ByIndex):
            def model(self):
                return nn.Sequential(nn.Flatten(), Bytes(), nn.BatchNorm1d(64), nn.Linear(64, 10))

        trainer = Trainer(host(Normed()), np.arange(400))
        weights = trainer.steps(trainer.model_host.genesis, 60).weights
        assert (trainer.evaluate(weights).accuracy or 0) > 0.7


class Bytes(nn.Module):
    def forward(self, x):
        return x.float() / 16


def received_labels(columns):
    return [torch.from_numpy(columns["y"][place : place + 1]) for place in (0, 19)] + [COLUMNS["y"][[1]]]


class TestWorkingSets:
    @pytest.fixture(autouse=True)
    def few(self, monkeypatch):
        monkeypatch.setattr(shard_rows, "LISTED", 128)

    def test_a_node_trains_on_some_rows_at_a_time_and_on_all_in_the_end(self):
        trainer, seen = Trainer(host(ByIndex()), seed=1), set()
        weights = trainer.model_host.genesis
        for _ in range(12):
            trainer.use(trainer.model_host.rows)
            assert len(trainer.pool) == 128 and trainer.samples == 1437
            weights = trainer.steps(weights, 4).weights
            seen |= set(trainer.pool.own.tolist())
            trainer.pool.end_round()
        assert len(seen) == 1437
        assert (trainer.evaluate(weights).accuracy or 0) > 0.5

    def test_it_moves_on_also_where_samples_are_mixed_anew_before_a_pass_ends(self):
        trainer, sets = Trainer(host(ByIndex()), seed=1), set()
        trainer.pool.balance()
        for _ in range(6):
            trainer.use(trainer.model_host.rows)
            trainer.steps(trainer.model_host.genesis, 3)
            trainer.pool.balance()  # begins a new order
            sets.add(trainer.pool.own.tobytes())
        assert len(sets) == 3  # a set of 128 has four batches

    def test_a_restored_trainer_goes_on_in_the_same_working_set(self):
        def trainer():
            made = Trainer(host(ByIndex()), seed=1)
            return made, made.model_host.genesis

        one, weights = trainer()
        for _ in range(4):
            one.use(one.model_host.rows)
            weights = one.steps(weights, 3).weights
        saved = one.state()
        other, _ = trainer()
        other.restore(saved)
        assert np.array_equal(one.pool.own, other.pool.own)
        assert np.array_equal(one.steps(weights, 1).weights, other.steps(weights, 1).weights)
        for each in (one, other):
            each.use(each.model_host.rows)
        assert np.array_equal(one.pool.own, other.pool.own)


class TestStream:
    def test_a_stream_teaches_as_rows_do(self):
        trainer = Trainer(host(Passing()), seed=1)
        weights = trainer.steps(trainer.model_host.genesis, 200).weights
        assert (trainer.evaluate(weights).accuracy or 0) > 0.85
        assert trainer.samples == 200 * 32 and not trainer.model_host.per_sample
        assert np.isnan(trainer.pool.scores.first).all()

    def test_nodes_see_different_samples_and_the_same_ones_again(self):
        model_host = host(Passing())
        runs = [Trainer(model_host, seed=seed).steps(model_host.genesis, 5).weights for seed in (1, 1, 2)]
        assert np.array_equal(runs[0], runs[1]) and not np.array_equal(runs[0], runs[2])

    def test_a_restart_begins_another_pass(self):
        model_host = host(Passing())
        one, other = Trainer(model_host, seed=1), Trainer(model_host, seed=1)
        weights = one.steps(model_host.genesis, 3).weights
        other.restore(one.state())
        again = Trainer(model_host, seed=1).steps(model_host.genesis, 3).weights
        assert np.array_equal(weights, again)
        assert not np.array_equal(other.steps(model_host.genesis, 3).weights, again)


class TestReadAhead:
    def test_rows_are_the_same_and_slow_ones_are_read_by_a_thread(self):
        trainers = [Trainer(host(ByIndex()), seed=2) for _ in range(2)]
        trainers[1].pool.read_ahead()
        ahead = trainers[1].pool._ahead
        assert ahead is not None
        ahead._clock = iter(range(10**6)).__next__  # every batch takes a second
        results = [trainer.steps(trainer.model_host.genesis, 20).weights for trainer in trainers]
        assert np.array_equal(results[0], results[1])
        readers = [vars(trainer.model_host.data)["_dataset"].readers for trainer in trainers]
        assert len(readers[0]) == 1 and any(name.startswith("read ahead") for name in readers[1])

    def test_fast_rows_need_no_thread(self):
        trainer = Trainer(host(ByIndex()))
        ahead = ReadAhead(trainer.model_host.data, iter(np.arange(0, 1, SLOW / 4)).__next__)
        for start in range(3):
            ahead.read(torch.arange(start, start + 2))
            ahead.expect(torch.arange(start + 1, start + 3))
        assert ahead._thread is None


LARGE = """
import resource, sys, time
import torch
from p2pnode.jobs.train.binding import make_plan, open_model_host
from p2pnode.config.options import TrainOptions
from p2pnode.jobs.train.prepare import own_rows
from p2pnode.training.trainer import Trainer
from pathlib import Path

torch.set_num_threads(1)
limit = 4 << 30  # of address space: 100 GB cannot be mapped, nor listed
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
options = TrainOptions(task=sys.argv[1], data=Path(sys.argv[2]))
host = open_model_host(options, 1)
plan = make_plan(host, options, 1)
rows = own_rows(host, options, plan, founded=True)
trainer = Trainer(host, rows, seed=1)
weights = host.genesis
for _ in range(3):
    trainer.use(rows)
    weights = trainer.steps(weights, 5).weights
    trainer.pool.end_round(["a", "b"])
trainer.evaluate(weights, host.test.spread(64))
print(trainer.samples, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, len(trainer.state()))
"""
TASK = """
from torch import nn
from p2pnode import Task, Tokens

class Large(Task):
    source = ""
    batch_size = 4

    def model(self):
        return nn.Sequential(nn.Embedding(64, 8), nn.Linear(8, 64))

    def data(self):
        return Tokens(self.source, 128, part=(0, 0.999))

    def test_data(self):
        return Tokens(self.source, 128, part=(0.999, 1))
"""


def test_100_gb_found_a_run_and_train_in_little_memory(tmp_path: Path) -> None:
    """The file is sparse; the limit on address space is far below its size."""
    (tmp_path / "large.py").write_text(TASK)
    with (tmp_path / "train.bin").open("wb") as file:
        file.truncate(100 << 30)
    command = [sys.executable, "-c", LARGE, str(tmp_path / "large.py"), str(tmp_path / "train.bin")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    samples, megabytes, _ = (int(word) for word in done.stdout.split())
    assert samples > 400_000_000
    assert megabytes < 200, "more memory than the working set explains"
