"""Streams: each reader has its own way through one, passes follow each other, and bad samples are left out."""

from __future__ import annotations

import itertools
import random
import threading

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from p2pnode.tasks import stream as streams
from p2pnode.tasks.data import BadData, as_data, as_test_data


class Numbers(IterableDataset):
    """The numbers up to `count`, made by a function."""

    def __init__(self, make=lambda number: {"x": torch.tensor([float(number)]), "y": number % 2}, count=10):
        self.make, self.count, self.epochs = make, count, []

    def set_epoch(self, number):
        self.epochs.append(number)

    def __iter__(self):
        for number in range(self.count):
            yield self.make(number)


def values(data, count: int) -> list[float]:
    return data.read(torch.arange(count))[0]["x"].flatten().tolist()


class TestReading:
    def test_samples_come_one_after_the_other_and_passes_too(self):
        numbers = Numbers()
        data = as_data(numbers)
        assert data.is_stream and not data.in_memory and data.labels is None
        reader = data.reader(1)
        assert values(reader, 4) == [0, 1, 2, 3]
        assert values(reader, 8) == [4, 5, 6, 7, 8, 9, 0, 1]
        assert reader.passes == 2 and reader.available == 12 and len(set(numbers.epochs)) == 2

    def test_every_reader_has_its_own_place_and_seed(self):
        numbers = Numbers()
        data = as_data(numbers)
        one, other = data.reader(1), data.reader(2)
        assert values(one, 3) == [0, 1, 2] and values(other, 2) == [0, 1] and values(one, 1) == [3]
        assert len(set(numbers.epochs)) == 2

    def test_random_numbers_are_the_readers_own_and_the_same_again(self):
        drawn = Numbers(lambda number: {"x": torch.rand(1) + random.random() + np.random.rand()})
        data = as_data(drawn)
        torch.manual_seed(7), random.seed(7), np.random.seed(7)
        before = torch.rand(1), random.random(), np.random.rand()
        torch.manual_seed(7), random.seed(7), np.random.seed(7)
        one, other = data.reader(1), data.reader(2)
        mixed = [value for _ in range(15) for value in (*values(one, 1), *values(other, 1))]
        assert (torch.rand(1), random.random(), np.random.rand()) == before
        assert mixed[::2] == values(data.reader(1), 15) != mixed[1::2]

    @pytest.mark.parametrize("size", [3, None])
    def test_a_data_loader_gives_its_samples_whatever_its_batches(self, size):
        assert values(as_data(DataLoader(Numbers(), batch_size=size)).reader(0), 12)[8:] == [8, 9, 0, 1]

    def test_workers_of_a_data_loader_are_seeded_too(self):
        loader = DataLoader(Numbers(lambda number: {"x": torch.rand(1)}), batch_size=4, num_workers=1)
        data = as_data(loader)
        assert values(data.reader(1), 6) == values(data.reader(1), 6) != values(data.reader(2), 6)

    def test_looking_again_uses_up_nothing(self):
        reader = as_data(Numbers()).reader(0)
        read = values(reader, 3)
        again, kept = reader.again(torch.arange(4))
        assert kept is None and again["x"].flatten().tolist() == [*read, read[0]]
        assert values(reader, 1) == [3]

    def test_test_data_are_the_first_samples_in_memory(self, monkeypatch):
        data = as_test_data(Numbers())
        assert data.in_memory and len(data) == 10 and not data.is_stream
        monkeypatch.setattr(streams, "TEST_SAMPLES", 4)
        assert len(as_test_data(Numbers(count=10**9))) == 4
        assert len(as_test_data(DataLoader(Numbers(count=10**9), batch_size=3))) == 4

    def test_equal_forms_have_equal_hashes(self):
        assert as_data(Numbers()).hash() == as_data(Numbers(count=7)).hash()
        assert as_data(Numbers()).hash() != as_data(Numbers(lambda number: torch.zeros(2))).hash()


def raises(number):
    raise OSError("connection lost")


class TestTrouble:
    @pytest.mark.parametrize(
        ("bad", "said"),
        [
            (lambda number: {"x": torch.zeros(2), "y": 1}, "sample 4 of pass 1 has x of shape (2,), and the first"),
            (lambda number: {"x": torch.tensor([float("inf")]), "y": 1}, "sample 4 of pass 1 has values in x that are"),
            (lambda number: "text", "sample 4 of pass 1 is a str"),
        ],
    )
    def test_a_bad_sample_is_left_out_and_reported(self, bad, said):
        good = Numbers().make
        reader = as_data(Numbers(lambda number: bad(number) if number == 3 else good(number))).reader(0)
        assert values(reader, 9) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert [problem for problem in reader.problems.values() if problem.startswith(said)]

    def test_a_pass_that_raises_is_followed_by_another(self):
        tries = itertools.count()

        def make(number):
            if number == 3 and next(tries) == 0:
                raise OSError("connection lost")
            return {"x": torch.tensor([float(number)])}

        reader = as_data(Numbers(make)).reader(0)
        assert values(reader, 6) == [0, 1, 2, 0, 1, 2]
        (problem,) = reader.problems.values()
        assert problem.startswith("sample 4 of pass 1 raised OSError: connection lost") and __file__ in problem

    def test_a_stream_that_fails_for_good_ends_with_one_line(self):
        lost = threading.Event()

        def make(number):
            if lost.is_set():
                raises(number)
            return {"x": torch.zeros(1)}

        reader = as_data(Numbers(make)).reader(0)
        assert len(values(reader, 4)) == 4
        lost.set()
        with pytest.raises(BadData, match="stream without good samples; sample 1 of pass 16 raised OSError"):
            values(reader, 20)

    @pytest.mark.parametrize(
        ("made", "said"),
        [
            (Numbers(count=0), "gave no samples"),
            (Numbers(raises), "first sample raised OSError: connection lost"),
            (Numbers(lambda number: None), "first sample is a NoneType"),
        ],
    )
    def test_a_stream_without_a_first_sample_is_refused(self, made, said):
        with pytest.raises(BadData, match=said):
            as_data(made)

    def test_a_stream_that_waits_for_ever_is_refused(self, monkeypatch):
        monkeypatch.setattr(streams, "WAIT", 0.2)
        forever = threading.Event()
        with pytest.raises(BadData, match=r"without a sample for 0\.2 seconds"):
            as_data(Numbers(lambda number: forever.wait()))
        forever.set()

    def test_a_stream_that_becomes_empty_is_reported(self):
        numbers = Numbers()
        reader = as_data(numbers).reader(0)
        numbers.count = 0
        with pytest.raises(BadData, match="sample 1 of pass 16 never came"):
            values(reader, 1)
